"""Set retries and timeouts of calls. They are applied once per call, by the dispatcher.

    policy: {max_attempts: 3, timeout_ms: 10000, retry_on: [transient, timeout, 5xx]}
    tool_policies: {search: {max_attempts: 6}, get_metadata: {max_attempts: 1, timeout_ms: 60000}}

Every source of tools takes the same keys: `policy` is for the source, `tool_policies` for its tools
by the source's own names. Each field that is not set is taken from the next level by itself, from
the tool to its source to the defaults below, so a policy that only sets a timeout keeps the
attempts. Source: requirement 004, part 6; systems.md §5.1 ("ToolPolicy").

`max_attempts` counts all attempts. The default is four for tools that only read or are idempotent,
and one for all others. A failure has a class: `transient` (a `ToolFailed(..., transient=True)` or a
broken connection), `timeout`, `5xx` (a server's own failure; `server` means the same), or
`permanent` for everything else. `permanent` may be listed but is never retried: the same call would
fail again. A call whose outcome is unknown is not repeated either, whatever the policy says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen, options

FAILURE_CLASSES = ("transient", "timeout", "5xx", "permanent")
RETRIED_CLASSES = FAILURE_CLASSES[:3]
"""The classes that are retried by default."""
_SYNONYMS = {"server": "5xx"}
BACKOFF, FACTOR, BACKOFF_MAX, JITTER = 0.1, 2.0, 30.0, 0.1
"""Defaults in seconds: the first retry waits about 0.2 seconds, none more than 30."""
POLICY_KEYS = (
    "max_attempts",
    "timeout_ms",
    "retry_on",
    "backoff_base_ms",
    "backoff_mult",
    "backoff_max_ms",
)
POLICY_ERROR = "policy"
"""The code of an error about a policy; no run may start with another policy than configured."""
_MAX_NUMBER = 1_000_000_000
"""The largest number in a policy; as milliseconds it is eleven days."""


@options
class Reliability:
    """Attempts, waits and timeout of a call, in seconds; None takes the default.

    `timeout` bounds one attempt (None: the engine's bound, `math.inf`: no bound). Before retry n
    there is a wait of `backoff * factor**n` and up to `jitter` (a share of `backoff`) more, at most
    `backoff_max`, which also bounds a wait that a service asks for.
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
            classes = tuple(_SYNONYMS.get(name, name) for name in self.retry_on)
            object.__setattr__(self, "retry_on", classes)
            for name in classes:
                if name not in FAILURE_CLASSES:
                    raise ValueError(f"retry_on: found `{name}`; use {', '.join(FAILURE_CLASSES)}")

    def fill_from(self, below: Reliability) -> Reliability:
        """Return this policy with its unset fields taken from the one below."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        given = {name: value for name, value in values.items() if value is not None}
        return replace(below, **given)

    def total_attempts(self, repeatable: bool) -> int:
        """Return the total number of attempts; the default depends on `repeatable`."""
        if self.max_attempts is not None:
            return self.max_attempts
        return 4 if repeatable else 1

    def should_retry(self, kind: str) -> bool:
        """Return whether failures of this class are retried."""
        retried = RETRIED_CLASSES if self.retry_on is None else self.retry_on
        return kind != "permanent" and kind in retried

    @property
    def max_delay(self) -> float:
        """The longest wait between attempts, in seconds."""
        return BACKOFF_MAX if self.backoff_max is None else self.backoff_max

    def retry_delay(self, retry: int, random_share: float) -> float:
        """Return the seconds to wait before a retry.

        Args:
            retry: Number of the retry, from 1.
            random_share: A random number in [0, 1], from the caller.
        """
        base = BACKOFF if self.backoff is None else self.backoff
        factor = FACTOR if self.factor is None else self.factor
        share = JITTER if self.jitter is None else self.jitter
        try:
            grown = base * factor**retry
        except OverflowError:
            return self.max_delay
        return min(grown + base * share * random_share, self.max_delay)


@frozen
class Policies:
    """Policies of a source of tools, and of its tools by the source's own names."""

    default: Reliability = Reliability()
    tools: Mapping[str, Reliability] = field(default_factory=dict[str, Reliability])

    def policy_for(self, tool: str, own: Reliability | None = None) -> Reliability:
        """Return the policy of a tool.

        The tool's entry in `tools` wins over `own` (what the tool declares itself), and that over
        the policy of the source.
        """
        below = self.default if own is None else own.fill_from(self.default)
        if tool not in self.tools:
            return below
        return self.tools[tool].fill_from(below)


def read_policies(default: Any, per_tool: Any, where: str) -> Policies:
    """Read the settings `policy` and `tool_policies`; None means they are not set.

    Args:
        default: The value of `policy`.
        per_tool: The value of `tool_policies`.
        where: Beginning of error messages.

    Raises:
        ConfigError: With the code `policy`, naming the key and what is accepted.
    """
    try:
        source = Reliability() if default is None else read_policy(default, f"{where}: `policy`")
        if per_tool is None:
            return Policies(source)
        listed = _check_mapping(per_tool, f"{where}: `tool_policies`")
        named = {
            name: read_policy(policy, f"{where}: `tool_policies.{name}`")
            for name, policy in listed.items()
        }
    except ConfigError as error:
        raise ConfigError(error.detail, code=POLICY_ERROR, hint=error.hint) from error
    return Policies(source, named)


def read_policy(given: Any, where: str) -> Reliability:
    """Read one policy: a mapping with any of `KEYS`.

    Raises:
        ConfigError: Names the key and what is accepted.
    """
    policy = _check_mapping(given, where)
    for name in policy:
        if name not in POLICY_KEYS:
            raise ConfigError(
                f"{where}: unknown key `{name}`", hint=f"known: {', '.join(POLICY_KEYS)}"
            )
    return Reliability(
        timeout=_read_seconds(policy, "timeout_ms", where, least=1),
        max_attempts=_read_whole_number(
            policy, "max_attempts", where, 1, "it counts all attempts: 1 or more"
        ),
        backoff=_read_seconds(policy, "backoff_base_ms", where, least=0),
        factor=_read_factor(policy.get("backoff_mult"), where),
        backoff_max=_read_seconds(policy, "backoff_max_ms", where, least=0),
        retry_on=_read_classes(policy.get("retry_on"), where),
    )


def _check_mapping(given: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must hold `key: value` pairs, found {given!r:.60}")
    return cast("Mapping[str, Any]", given)


def _read_whole_number(
    policy: Mapping[str, Any], key: str, where: str, least: int, rule: str
) -> int | None:
    given = policy.get(key)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= _MAX_NUMBER:
        raise ConfigError(f"{where}: `{key}` = {given!r:.60}", hint=rule)
    return given


def _read_seconds(policy: Mapping[str, Any], key: str, where: str, *, least: int) -> float | None:
    milliseconds = _read_whole_number(
        policy, key, where, least, f"whole milliseconds: {least} or more"
    )
    return None if milliseconds is None else milliseconds / 1000


def _read_factor(given: Any, where: str) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 1 <= given <= 1000:
        raise ConfigError(
            f"{where}: `backoff_mult` = {given!r:.60}", hint="a number from 1 to 1000"
        )
    return float(given)


def _read_classes(given: Any, where: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)):
        raise ConfigError(
            f"{where}: `retry_on` must be a list", hint=f"of {', '.join(FAILURE_CLASSES)}"
        )
    names = tuple(str(name) for name in cast("list[object]", given))
    for name in names:
        if name not in FAILURE_CLASSES and name not in _SYNONYMS:
            raise ConfigError(
                f"{where}: `retry_on`: found `{name:.60}`", hint=f"use {', '.join(FAILURE_CLASSES)}"
            )
    return names
