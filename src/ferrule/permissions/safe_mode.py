"""Safe mode (requirement 000): which programs may run at all, and what may be done below which
path.

Safe mode only takes away. It says which programs run, not what they do: a program on the list still
goes through rules, risk and the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen

from .rule_matching import Case

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
    """`on`: only `programs` may run (exact names). `permissions` maps a path prefix to what may be
    done there.

    The longest prefix that matches decides and replaces shorter ones; `.` or `/` is the workspace.
    Without permissions everything may be done. Permissions hold whether safe mode is on or off.
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
        """May `action` be done to `path` (relative to the workspace)?"""
        wanted = _parts(path)
        best: tuple[str, ...] | None = None
        length = -1
        for prefix, actions in self.permissions.items():
            parts = _parts(prefix)
            if len(parts) > length and wanted[: len(parts)] == parts:
                best, length = actions, len(parts)
        return not self.permissions or (best is not None and action in best)

    def refuses(self, programs: Iterable[str]) -> str:
        """Why these programs may not run; empty if they may."""
        outside = [name for name in programs if name not in self.programs] if self.on else []
        if not outside:
            return ""
        listed = ", ".join(f"`{name}`" for name in dict.fromkeys(outside))
        return (
            f"safe mode is on and {listed} is not among its programs ({', '.join(self.programs)})"
        )

    def allow(self, program: str) -> SafeMode:
        """With one program more."""
        return replace(self, programs=tuple(dict.fromkeys((*self.programs, program))))

    def deny(self, program: str) -> SafeMode:
        """With one program less."""
        return replace(self, programs=tuple(name for name in self.programs if name != program))


_DELETERS = frozenset({"rm", "rmdir", "unlink", "shred"})


def violations(safe: SafeMode, case: Case, root: str) -> Iterator[str]:
    """What of a call safe mode or its permissions forbid, in words."""
    wanted = [
        (need.value, need.kind)
        for need in case.needs
        if need.kind in ("read", "write") and need.value
    ]
    for analysis in case.analyses:
        if why := safe.refuses(analysis.programs):
            yield why
        wanted.append((root, "exec"))
        changes = "delete" if _DELETERS.intersection(analysis.programs) else "write"
        wanted += [(path, changes if written else "read") for path, written in case.named]
    for path, action in wanted:
        relative = path.removeprefix(root).lstrip("/") or "."
        if not safe.has_permission(relative, action):
            yield f"permissions do not allow to {action} `{relative}`"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
