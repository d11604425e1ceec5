"""`SubAgent`, an agent that others delegate to, and the limits of delegation."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.limits import Limits
from ferrule.core.value_class import options
from ferrule.engine.hooks.events import EventHook
from ferrule.models.registry import default_turns
from ferrule.permissions.rule_evaluation import MODES

DELEGATE = "delegate"
"""The name of the tool."""

MAX_DEPTH = 5
MAX_CONCURRENT = 5

_NAME = compile_lazily(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@options
class SubAgent:
    """The purpose and rights of a sub-agent, at most those of the delegating session.

    Attributes:
        name: Its name.
        description: For whoever chooses an agent.
        prompt: Its own instructions.
        tools: Names, or patterns with `*`, of tools of the delegating session; None means all of
            them except `delegate`, which must be named.
        denied: Tools to exclude from these.
        model: `provider:model`; "" means that of the session.
        limits: They apply where they are tighter than what is left of the session's.
        mode: A permission mode; the tighter of it and the session's applies.
        hooks: They come after the session's own.
        verify: Checks its work if a request names no check (`engine.delegation.verification`).
        source: Origin of the definition.
        output_type: What its work ends with instead of text, as for `Agent`.

    Raises:
        ConfigError: It names the agent and what is wrong.
    """

    name: str
    description: str
    prompt: str = ""
    tools: tuple[str, ...] | list[str] | None = None
    denied: tuple[str, ...] | list[str] = ()
    model: str = ""
    limits: Limits | None = None
    mode: str = ""
    hooks: tuple[EventHook, ...] = ()
    verify: str = ""
    source: str = "python"
    output_type: object = str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"an agent is named {self.name!r}", hint="letters, digits, `_` and `-`, at most 64"
            )
        if not self.description.strip():
            raise ConfigError(
                f"the agent `{self.name}` has no description", hint="say what it is good for"
            )
        if self.mode and self.mode not in MODES:
            raise ConfigError(
                f"the agent `{self.name}`: there is no mode `{self.mode}`",
                hint=f"use one of {', '.join(MODES)}",
            )
        if isinstance(self.tools, str) or isinstance(self.denied, str):  # pyright: ignore[reportUnnecessaryIsInstance] - programs are not all checked
            raise ConfigError(f"the agent `{self.name}`: tools are a list of names")
        if self.output_type is not str:
            self._parse_output_type()

    def _parse_output_type(self) -> None:
        # Imported here: most agents have none.
        from ferrule.engine.output.output_type import parse_output_type

        try:
            parsed = parse_output_type(self.output_type)
        except ConfigError as error:
            raise ConfigError(
                f"the agent `{self.name}`: {error.detail}", hint=error.hint
            ) from error
        object.__setattr__(self, "output_type", parsed or str)

    def may_use(self, tool: str) -> bool:
        """Whether its tools include this one, if the session has it."""
        if matches_any(tool, self.denied):
            return False
        return tool != DELEGATE if self.tools is None else is_agent_name(tool, self.tools)


def is_agent_name(tool: str, patterns: Iterable[str]) -> bool:
    """Whether one of these names or patterns means this tool.

    Patterns never match `delegate`; it must be named.
    """
    return matches_any(tool, (one for one in patterns if tool != DELEGATE or one == DELEGATE))


def matches_any(tool: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of these patterns."""
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


@options
class DelegationLimits:
    """How far a session and its sub-agents may delegate. Only tighter than the hard limits.

    Attributes:
        max_depth: How deep sub-agents may be nested; the session's own are at depth 1.
        max_concurrent: How many may work at the same time in all.
        turns: Turns of one message at depth 1, 2, ...; the last number applies to all deeper ones.
            None for as many as a session of its model, and half as many at each further depth.
        models: Models that a request may name, besides the session's own and those of its
            sub-agents.

    Source: systems.md §4.1.
    """

    max_depth: int = 3
    max_concurrent: int = MAX_CONCURRENT
    turns: tuple[int, ...] | None = None
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.max_depth <= MAX_DEPTH:
            raise ConfigError(f"max_depth = {self.max_depth}: 1 to {MAX_DEPTH}")
        if not 1 <= self.max_concurrent <= MAX_CONCURRENT:
            raise ConfigError(f"max_concurrent = {self.max_concurrent}: 1 to {MAX_CONCURRENT}")
        if self.turns is not None and min(self.turns, default=0) < 1:
            raise ConfigError(f"turns = {self.turns}: at least one number, each at least 1")

    def turns_at(self, depth: int, model: str) -> int:
        """Return the turns of one message of a sub-agent of this model at this depth, 1 or more."""
        if self.turns is None:
            return max(1, default_turns(model) >> (depth - 1))
        return self.turns[min(depth, len(self.turns)) - 1]
