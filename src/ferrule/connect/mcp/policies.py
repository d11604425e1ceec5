"""How often and how long calls of a server's tools are tried: `policy` for a server, `tool_policies` for one of its tools.

    policy: {max_attempts: 3, timeout_ms: 10000, retry_on: [transient, timeout, 5xx]}
    tool_policies: {search: {max_attempts: 6}}

Source: requirement 004, part 6. `max_attempts` counts all attempts. A field that a tool's entry leaves out is the server's, one
that the server leaves out is the default: 30 seconds, and as many attempts as `tools.reliability` gives to a tool of this kind
(four where the tool only reads or is idempotent, one otherwise). Keys of `tool_policies` are the names that the server gives.

`permanent` is a class that may be named and is never retried: the same question would get the same no. What has an effect and
may have had it is not repeated either, whatever is written here (`tools.reliability`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.core.errors import ConfigError

CLASSES = ("transient", "timeout", "5xx", "permanent")
TIMEOUT = 30.0
"""Seconds that one attempt may take."""
_FIELDS = ("max_attempts", "timeout_ms", "retry_on")


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """What was written; None where nothing was. `timeout` in seconds."""

    max_attempts: int | None = None
    timeout: float | None = None
    retry_on: tuple[str, ...] | None = None

    def over(self, below: CallPolicy) -> CallPolicy:
        """This one, and what it leaves open from the one below it."""
        return CallPolicy(
            below.max_attempts if self.max_attempts is None else self.max_attempts,
            below.timeout if self.timeout is None else self.timeout,
            below.retry_on if self.retry_on is None else self.retry_on,
        )


@dataclass(frozen=True, slots=True)
class Policies:
    """A server's policy and those of its tools by the server's own names."""

    server: CallPolicy = CallPolicy()
    tools: Mapping[str, CallPolicy] = field(default_factory=dict[str, CallPolicy])

    def of(self, tool: str) -> CallPolicy:
        """What holds for a tool."""
        return self.tools.get(tool, CallPolicy()).over(self.server)


def parse_policies(policy: Any, tool_policies: Any, where: str) -> Policies:
    """From what a person wrote. Raises ConfigError naming the key: also for an unknown retry class."""
    server = CallPolicy() if policy is None else parse_policy(policy, f"{where}: `policy`")
    if tool_policies is None:
        return Policies(server)
    listed = _mapping(tool_policies, f"{where}: `tool_policies`")
    tools = {name: parse_policy(one, f"{where}: `tool_policies.{name}`") for name, one in listed.items()}
    return Policies(server, tools)


def parse_policy(given: Any, where: str) -> CallPolicy:
    """One policy. Raises ConfigError."""
    fields = _mapping(given, where)
    for name in fields:
        if name not in _FIELDS:
            raise ConfigError(f"{where}: unknown key `{name}`", hint=f"known: {', '.join(_FIELDS)}")
    return CallPolicy(
        _whole(fields.get("max_attempts"), f"{where}: `max_attempts`", "counts all attempts: 1 or more"),
        _seconds(_whole(fields.get("timeout_ms"), f"{where}: `timeout_ms`", "are milliseconds: 1 or more")),
        _classes(fields.get("retry_on"), where),
    )


def _mapping(given: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must hold `key: value` pairs")
    return cast("Mapping[str, Any]", given)


def _whole(given: Any, where: str, rule: str) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigError(f"{where} = {given!r}", hint=f"they {rule}" if rule.startswith("are") else rule)
    return given


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _classes(given: Any, where: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)):
        raise ConfigError(f"{where}: `retry_on` must be a list", hint=f"of {', '.join(CLASSES)}")
    names = tuple(str(one) for one in cast("list[object]", given))
    for name in names:
        if name not in CLASSES:
            raise ConfigError(f"{where}: `retry_on`: found `{name}`", hint=f"use {', '.join(CLASSES)}")
    return names
