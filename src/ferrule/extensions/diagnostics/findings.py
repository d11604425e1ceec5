"""What is said about lines of files, what says it, and what of it is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import Occasion

MAX_SHOWN = 20
"""New diagnostics that a result gets; the others are counted."""
MAX_TEXT = 300


@frozen
class Diagnostic:
    """What is said about a line."""

    path: str
    line: int
    text: str


Findings = tuple[Diagnostic, ...]
"""All that was said of a file, or of a project."""


class CheckFailed(Exception):
    """A source can say nothing from now on. `str` says why."""


class Source(Protocol):
    """A checker, or a language server, that says what is wrong with a file.

    Attributes:
        name: Stands before what it says.
        known: What it said last, by target.
        left_out: It has failed and is not asked any more.
        sees_changes: It is asked before every change, not only before the first one of a file: it
            can tell at once that nothing has changed meanwhile.
    """

    name: str
    known: dict[str, Findings]
    left_out: bool
    sees_changes: bool

    async def find_targets(self, names: Sequence[str]) -> Sequence[str]:
        """Return what is to be checked if these files change; a project is the empty name."""
        ...

    async def check(self, target: str, occasion: Occasion) -> Findings:
        """Check a target as it is now and remember the findings in `known`.

        Raises:
            CheckFailed: It cannot be asked, or took too long.
        """
        ...

    async def close(self) -> None:
        """End what runs for it."""
        ...


def make_diagnostic(path: str, line: int, text: str) -> Diagnostic:
    """Return a diagnostic with a bounded text in one line."""
    return Diagnostic(path, line, " ".join(text.split())[:MAX_TEXT])


def list_new(source: str, before: Findings, now: Findings) -> list[str]:
    """Return what was not said before. Lines have moved, so only files and texts are compared."""
    known = Counter((one.path, one.text) for one in before)
    new: list[str] = []
    for one in now:
        if known[one.path, one.text]:
            known[one.path, one.text] -= 1
            continue
        new.append(f"{one.path}:{one.line}: {source}: {one.text}")
    return new


def format_new(new: Sequence[str]) -> str:
    """Return the text that goes with a result."""
    if not new:
        return ""
    rows = [escape_for_approval(row) for row in new[:MAX_SHOWN]]
    if len(new) > MAX_SHOWN:
        rows.append(f"and {len(new) - MAX_SHOWN} more")
    return "\n".join(["new since this change:", *rows])
