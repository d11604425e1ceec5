"""What a handler may ask of the run it is part of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ferrule.core.calls import Result
from ferrule.core.errors import ConfigError
from ferrule.core.events import CallConfined, CallHooked, FilesSeen
from ferrule.core.identity import Identity

T = TypeVar("T")

SAID = "said"
"""The topic of notes that repeat what `progress` has shown: nobody needs to see them twice."""
HELD = "sandbox"
"""The topic of notes that say what holds a session's commands, or why none may run. Kept; results
say it where it matters.
"""
ANSWERED = "answered"
"""The topic of notes about a person's answer to what a handler asked: they know what they said."""
ASIDE = (SAID, HELD, ANSWERED)
"""What stands in the journal and is not drawn for whoever talks with a model."""


@dataclass(slots=True)
class Context:
    """Handed to a handler that declares a parameter of this type; the parameter is not in the
    schema.

    `memory` lives as long as the session and is the tool's own (what was last read, the task list);
    it does not survive a restart. `progress` shows a line to the person, not to the model. `call`
    runs another tool through the same pipeline and gate, on behalf of this call. `deadline` is the
    time in seconds that this attempt may take, for handlers that pass a timeout on.

    `tell` hands the model words (framed as data of this tool) before its next answer, or with the
    next message if no run is under way; it may be kept and called after this call has ended, from
    any thread. `on_close` registers what ends with the session: called once, awaited, the last
    registered first, all within ten seconds.

    `note` writes a notice into the journal, for people and not for the model: a topic, and what
    there is to say. It is written with what is written next; only on the loop of the run. `record`
    writes what an auditor of this call must find (a hook's word, what holds a program), at once:
    raises JournalError where that cannot be, and then nothing may follow.
    """

    identity: Identity
    call_id: str
    memory: dict[str, Any] = field(default_factory=dict[str, Any])
    resources: Mapping[type, object] = field(default_factory=dict[type, object])
    progress: Callable[[str], None] = lambda text: None
    call: Callable[[str, dict[str, Any]], Awaitable[Result]] | None = None
    deadline: float | None = None
    tell: Callable[[str], None] = lambda text: None
    note: Callable[[str, str], None] = lambda topic, text: None
    on_close: Callable[[Callable[[], Awaitable[None]]], None] = lambda closer: None
    record: Callable[[CallHooked | CallConfined | FilesSeen], None] = lambda event: None
    launched: bool = False
    """Whether the call was answered and its work goes on as a task (`tools.launch`). Set by the
    dispatcher.
    """

    def resource(self, kind: type[T]) -> T:
        """What the run was given of this kind: `context.resource(Workspace)` is the folder it works
        in.

        Raises ConfigError, naming the kind, if the run has none.
        """
        found = self.resources.get(kind)
        if not isinstance(found, kind):
            hint = f"pass a `{kind.__name__}` in `resources=[...]` of the Agent"
            if kind.__name__ == "Workspace":
                # The only resource that an Agent takes by an option of its own.
                hint = "pass `workspace=` to the Agent"
            raise ConfigError(
                f"this tool needs a `{kind.__name__}`, and the run was given none", hint=hint
            )
        return found
