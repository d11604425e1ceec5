"""Safe mode (requirement 000): which programs may run, and what may be done below which path.

Safe mode only forbids. It says which programs may run, not what they may do: rules, risk and the
sandbox still apply to a program on the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

from .rule_matching import AnalysedCall

DEFAULT_PROGRAMS = (
    "ls",
    "cat",
    "grep",
    "head",
    "tail",
    "wc",
    "find",
    "stat",
    "jq",
    "htmlq",
    "bat",
    "batcat",
)
"""The programs of requirement 000's `security.allowed_commands`."""

ACTIONS = ("read", "write", "exec", "delete")


@frozen
class SafeMode:
    """Which programs may run, and what may be done where.

    Attributes:
        on: Whether only `programs` may run.
        programs: Exact names of programs.
        permissions: What may be done, by path prefix. The longest matching prefix decides; `.` or
            `/` is the workspace. If there are none, everything may be done. They apply whether
            safe mode is on or off.
    """

    on: bool = True
    programs: tuple[str, ...] = DEFAULT_PROGRAMS
    permissions: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def __post_init__(self) -> None:
        for prefix, actions in self.permissions.items():
            for action in actions:
                if action not in ACTIONS:
                    raise ConfigError(
                        f"security.permissions `{prefix}`: found `{action}`",
                        hint=f"use {', '.join(ACTIONS)}",
                    )

    def has_permission(self, path: str, action: str) -> bool:
        """Return whether `action` may be done to `path` (relative to the workspace)."""
        if not self.permissions:
            return True
        components = _components(path)
        allowed: tuple[str, ...] = ()
        longest = -1
        for prefix, actions in self.permissions.items():
            parts = _components(prefix)
            if len(parts) > longest and components[: len(parts)] == parts:
                allowed = actions
                longest = len(parts)
        return action in allowed

    def find_refusal(self, programs: Iterable[str]) -> str:
        """Return why these programs may not run; empty if they may."""
        outside = [name for name in programs if name not in self.programs] if self.on else []
        if not outside:
            return ""
        listed = ", ".join(f"`{name}`" for name in dict.fromkeys(outside))
        return (
            f"safe mode is on and {listed} is not among its programs ({', '.join(self.programs)})"
        )

    def allow(self, program: str) -> SafeMode:
        """Return a copy that also allows a program."""
        return replace(self, programs=tuple(dict.fromkeys((*self.programs, program))))

    def deny(self, program: str) -> SafeMode:
        """Return a copy that no longer allows a program."""
        return replace(self, programs=tuple(name for name in self.programs if name != program))


_DELETING_PROGRAMS = frozenset({"rm", "rmdir", "unlink", "shred"})


def find_violations(safe: SafeMode, case: AnalysedCall, root: str) -> Iterator[str]:
    """Yield why safe mode or its permissions forbid a call."""
    path_needs = [need for need in case.needs if need.kind in ("read", "write")]
    actions = [(need.value, need.kind) for need in path_needs if need.value]
    for analysis in case.analyses:
        reason = safe.find_refusal(analysis.programs)
        if reason:
            yield reason
        actions.append((root, "exec"))
        change = "delete" if _DELETING_PROGRAMS.intersection(analysis.programs) else "write"
        actions += [(path, change if written else "read") for path, written in case.named_files]
    for path, action in actions:
        relative = path.removeprefix(root).lstrip("/") or "."
        if not safe.has_permission(relative, action):
            yield f"permissions do not allow to {action} `{relative}`"


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
