"""Options of an agent besides its model and its tools, grouped by what belongs together.

Each group is a value with defaults that work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ferrule.core.callbacks import check_callback
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.core.value_class import options
from ferrule.core.vocabulary import PermissionMode, ResultForm
from ferrule.engine import event_bus
from ferrule.models.client import ModelClient, ToolModeOption
from ferrule.models.registry import create_model_client
from ferrule.permissions.approvals import Approver
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.storage.artifacts.store import ArtifactStore, RunArtifacts
from ferrule.storage.journal.protocols import Journal
from ferrule.tools import search as tool_ranking

from .clock import Clock
from .stopping import STOP_SECONDS


@options
class Permissions:
    """Rules for tool calls, and who approves the others.

    Attributes:
        allow: Permission rules: `"Edit(docs/**)"`, `"Bash(git diff:*)"`, a tool's name.
        ask: Rules for calls that need an approval each time.
        deny: Rules for calls that are refused. Deny wins over ask, ask over allow.
        mode: The decision if no rule applies: `default`, `acceptEdits`, `plan`, `dontAsk`, `auto`,
            `sandboxed` or `bypassPermissions`.
        approver: Answers calls that no rule decides. Without one, *ask* means *deny*.
        scopes: Scopes that the sessions hold; a tool that needs another one is refused.
        gate: A gate of your own, instead of rules and mode.
    """

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    mode: PermissionMode = "default"
    approver: Approver | None = None
    scopes: Iterable[str] = ()
    gate: PermissionGate | None = None


@options
class Storage:
    """Where sessions are kept, and in whose name.

    Attributes:
        journal: A journal, a file or an address (`storage.locations`). By default it is in memory
            and ends with the program.
        artifacts: Where large results are kept: True for the person's own state folder, a folder,
            an address or a store. The model then gets stubs, and tools to read parts. By default
            only what exceeds the output limit is kept, for its owner, if the journal is a file.
        tenant: Whose sessions they are, among those who share a journal.
        user: Whose sessions they are, within the tenant. By default the system's user.
    """

    journal: Journal | str | Path | None = None
    artifacts: RunArtifacts | ArtifactStore | str | Path | bool | None = None
    tenant: str = "local"
    user: str = ""


@options
class ToolCalling:
    """How the model calls tools, and what it sees of them.

    Attributes:
        mode: `auto` chooses by what the model can do; `native`, `constrained`, `text` and
            `commands` force a tool mode.
        fallback: Whether a mode that the model cannot use falls to the next one.
        results: `value` shows the model a successful result's value; `envelope` the whole result
            object always.
        parallel: Whether calls of a turn may run together. False: one by one, in the model's order.
        search: How deferred tools are found (`tools.search.options`). None: searched for if there
            are any. False: tools are not deferred.
        errors: What the model reads of an unexpected exception of a tool: its `text`,
            or its `name` alone. Then the text goes to the logger `ferrule.tools`.
    """

    mode: ToolModeOption = "auto"
    fallback: bool = True
    results: ResultForm = "value"
    parallel: bool = True
    search: tool_ranking.ToolSearch | Mapping[str, Any] | str | bool | None = None
    errors: Literal["text", "name"] = "text"

    def __post_init__(self) -> None:
        if self.errors not in ("text", "name"):
            raise ConfigError(f"errors = {self.errors!r}", hint="use `text` or `name`")
        if self.results not in ("value", "envelope"):
            raise ConfigError(f"results = {self.results!r}", hint="use `value` or `envelope`")

    @classmethod
    def parse(cls, given: ToolCalling | ToolModeOption | None) -> ToolCalling:
        """Return what an agent was given: these options, or a tool mode alone."""
        return given if isinstance(given, ToolCalling) else cls(given or "auto")


@options
class Host:
    """Services that the program around an agent provides.

    Attributes:
        connect: Turns a model's name into a client when it is first needed.
        bus: Where others see what happens in the sessions (`engine.event_bus.bus`).
        clock: The time that retries and timeouts use.
        interruptible: Give each call its own task, so that a person can stop one of them.
        stop_seconds: How long a handler that was stopped may take to end. One that does not is left
            behind, and the outcome of its call is unknown.
        name: The agent's name in events and spans.
        make_deps: Makes the dependencies (`Agent(deps_type=...)`) of each run that is given none,
            from whose run it is; it may be async. It holds on every way in: workers, evaluation,
            servers, console.
    """

    connect: Callable[[str], ModelClient] = create_model_client
    bus: event_bus.Bus | None = None
    clock: Clock | None = None
    interruptible: bool = False
    stop_seconds: float = STOP_SECONDS
    name: str = ""
    make_deps: Callable[[Identity], Any] | None = None

    def __post_init__(self) -> None:
        if self.make_deps is not None:
            check_callback("make_deps", self.make_deps, ("identity",))
        if not 0 <= self.stop_seconds < math.inf:
            raise ConfigError(
                f"stop_seconds = {self.stop_seconds!r}", hint="give a number of seconds, 0 or more"
            )
