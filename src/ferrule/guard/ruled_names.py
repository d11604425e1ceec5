"""Names that no tool may touch, with the person's own deny rules among them.

A deny rule such as `Read(private/**)` is decided by the gate where an argument names the path. A search, a
listing or a tree meets paths that no argument named: for them the same refusal has to hold where files are
opened. So the workspace is given these names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .reserved import Names


@dataclass(frozen=True, slots=True)
class RuledNames(Names):
    """`refuses(path, write)` says why a path may not be read (or written), or nothing: `Gate.refuses_path`."""

    refuses: Callable[[str, bool], str] = lambda path, write: ""

    def check(self, name: str, *, write: bool) -> str | None:
        # The base class by name: `super()` does not work in a dataclass with slots.
        return Names.check(self, name, write=write) or self._ruled(name, write)

    def _ruled(self, name: str, write: bool) -> str | None:
        reason = self.refuses(name, write)
        return f"is {reason}" if reason.startswith("denied") else reason or None
