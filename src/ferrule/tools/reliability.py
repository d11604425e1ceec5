"""How often and how long a call is tried. Applied exactly once per call, by the dispatcher's shell.

    policy: {max_attempts: 3, timeout_ms: 10000, retry_on: [transient, timeout, 5xx]}
    tool_policies: {search: {max_attempts: 6}, get_metadata: {max_attempts: 1, timeout_ms: 60000}}

The same keys for every source of tools: `policy` holds for a source, `tool_policies` for its tools
by its own names for them. A field that nobody wrote falls through by itself, from the tool to its
source to the defaults below, so that a policy which only sets a time keeps its attempts. Source:
requirement 004, part 6; systems.md §5.1 ("ToolPolicy").

`max_attempts` counts all attempts. Unwritten: four for tools that only read or are idempotent, one
for all others. Failures have a class: `transient` (a `ToolFailed(..., transient=True)`, a
connection that broke), `timeout`, `5xx` (a server's own failure; `server` is the same word), and
`permanent`, everything else. `permanent` may be named and is never retried: the same question would
get the same no. An effect whose outcome is unknown is not repeated either, whatever is written
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen

CLASSES = ("transient", "timeout", "5xx", "permanent")
RETRIED = CLASSES[:3]
"""The classes that are retried where nobody says otherwise."""
_SAME = {"server": "5xx"}
BACKOFF, FACTOR, BACKOFF_MAX, JITTER = 0.1, 2.0, 30.0, 0.1
"""Where nobody says otherwise: the first retry waits about 0.2 seconds, none longer than 30."""
KEYS = (
    "max_attempts",
    "timeout_ms",
    "retry_on",
    "backoff_base_ms",
    "backoff_mult",
    "backoff_max_ms",
)
POLICY = "policy"
"""The code of an error about a policy: nobody may run with another one than was written."""
_MOST = 1_000_000_000
"""No number of a policy is larger: that many milliseconds are eleven days."""


@frozen
class Reliability:
    """What was said of attempts; None where nothing was, which takes the default. Times in seconds.

    `timeout` bounds one attempt (the engine's bound if None, no bound if `math.inf`). Before retry
    n it waits `backoff * factor**n`, and up to `jitter` (a share of `backoff`) more, at most
    `backoff_max`: also for a service that says itself when to come back.
    """

    timeout: float | None = None
    max_attempts: int | None = None
    backoff: float | None = None
    factor: float | None = None
    backoff_max: float | None = None
    jitter: float | None = None
    retry_on: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, least in (("backoff", 0), ("factor", 1), ("backoff_max", 0), ("jitter", 0)):
            number = getattr(self, name)
            if number is not None and not (least <= number < math.inf):
                raise ValueError(f"{name} = {number!r}: it must be at least {least}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("max_attempts counts all attempts: it must be at least 1")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError("timeout must be more than 0 seconds")
        if self.retry_on is not None:
            object.__setattr__(
                self, "retry_on", tuple(_SAME.get(name, name) for name in self.retry_on)
            )
            for name in self.retry_on:
                if name not in CLASSES:
                    raise ValueError(f"retry_on: found `{name}`; use {', '.join(CLASSES)}")

    def over(self, below: Reliability) -> Reliability:
        """This one, and what it leaves open from the one below it."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(below, **{name: value for name, value in said.items() if value is not None})

    def attempts(self, repeatable: bool) -> int:
        """Total attempts for a tool that may (`repeatable`) or may not be run again by itself."""
        if self.max_attempts is not None:
            return self.max_attempts
        return 4 if repeatable else 1

    def retries(self, kind: str) -> bool:
        """Whether failures of this class are tried again."""
        return kind != "permanent" and kind in (RETRIED if self.retry_on is None else self.retry_on)

    @property
    def longest(self) -> float:
        """Seconds that one wait may take."""
        return BACKOFF_MAX if self.backoff_max is None else self.backoff_max

    def wait(self, retry: int, dice: float) -> float:
        """Seconds before retry `retry` (the first is 1); `dice` in [0, 1] is the caller's
        chance.
        """
        base = BACKOFF if self.backoff is None else self.backoff
        factor = FACTOR if self.factor is None else self.factor
        share = JITTER if self.jitter is None else self.jitter
        try:
            grown = base * factor**retry
        except OverflowError:
            return self.longest
        return min(grown + base * share * dice, self.longest)


@frozen
class Policies:
    """What was said of a source, and of its tools by the source's own names."""

    default: Reliability = Reliability()
    tools: Mapping[str, Reliability] = field(default_factory=dict[str, Reliability])

    def of(self, tool: str, own: Reliability | None = None) -> Reliability:
        """What holds for a tool; `own` is what it says of itself, stronger than its source and
        weaker than its entry.
        """
        below = self.default if own is None else own.over(self.default)
        return self.tools[tool].over(below) if tool in self.tools else below


def policies(default: Any, per_tool: Any, where: str) -> Policies:
    """From what a person wrote under `policy` and `tool_policies` (None: nothing). `where` begins
    what an error says.

    Raises ConfigError (code `policy`) naming the key and what is accepted, also for an unknown
    class.
    """
    try:
        source = Reliability() if default is None else read_policy(default, f"{where}: `policy`")
        if per_tool is None:
            return Policies(source)
        listed = _mapping(per_tool, f"{where}: `tool_policies`")
        named = {
            name: read_policy(one, f"{where}: `tool_policies.{name}`")
            for name, one in listed.items()
        }
    except ConfigError as error:
        raise ConfigError(error.detail, code=POLICY, hint=error.hint) from error
    return Policies(source, named)


def read_policy(given: Any, where: str) -> Reliability:
    """One policy: a mapping with any of `KEYS`. Raises ConfigError naming the key and what is
    accepted.
    """
    said = _mapping(given, where)
    for name in said:
        if name not in KEYS:
            raise ConfigError(f"{where}: unknown key `{name}`", hint=f"known: {', '.join(KEYS)}")
    return Reliability(
        timeout=_seconds(said, "timeout_ms", where, least=1),
        max_attempts=_whole(said, "max_attempts", where, 1, "it counts all attempts: 1 or more"),
        backoff=_seconds(said, "backoff_base_ms", where, least=0),
        factor=_factor(said.get("backoff_mult"), where),
        backoff_max=_seconds(said, "backoff_max_ms", where, least=0),
        retry_on=_classes(said.get("retry_on"), where),
    )


def _mapping(given: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must hold `key: value` pairs, found {given!r:.60}")
    return cast("Mapping[str, Any]", given)


def _whole(said: Mapping[str, Any], key: str, where: str, least: int, rule: str) -> int | None:
    given = said.get(key)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= _MOST:
        raise ConfigError(f"{where}: `{key}` = {given!r:.60}", hint=rule)
    return given


def _seconds(said: Mapping[str, Any], key: str, where: str, *, least: int) -> float | None:
    milliseconds = _whole(said, key, where, least, f"whole milliseconds: {least} or more")
    return None if milliseconds is None else milliseconds / 1000


def _factor(given: Any, where: str) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 1 <= given <= 1000:
        raise ConfigError(
            f"{where}: `backoff_mult` = {given!r:.60}", hint="a number from 1 to 1000"
        )
    return float(given)


def _classes(given: Any, where: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)):
        raise ConfigError(f"{where}: `retry_on` must be a list", hint=f"of {', '.join(CLASSES)}")
    names = tuple(str(one) for one in cast("list[object]", given))
    for name in names:
        if name not in CLASSES and name not in _SAME:
            raise ConfigError(
                f"{where}: `retry_on`: found `{name:.60}`", hint=f"use {', '.join(CLASSES)}"
            )
    return names
