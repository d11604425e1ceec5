"""In which folder each command of a line starts: what `cd` did before it, as far as that is sure.

    cd docs && make && cd .. && ls      `make` starts in `docs`, `ls` in the folder of the whole line
    cd docs; ls                         `ls` starts in `docs`, or where the line does if the `cd` failed

Followed are lists (`;`, `&&`, `||`, newlines) and subshells. A `cd` anywhere else, in a loop, a
function, a pipeline or the text of another shell, and all that changes what `cd` means make it
*lost*: then every folder that any `cd` names is possible everywhere.
"""

from __future__ import annotations

import posixpath
from collections.abc import Generator
from contextlib import contextmanager

from .syntax import Part

States = tuple[str, ...]

_ASIDE = frozenset({"subshell", "substitution"})
"""Run by a shell of their own: a `cd` in them ends with them."""

_MOST = 8
MOVERS = frozenset({"cd", "pushd", "popd"})
_CHANGES_CD = frozenset({"set", "shopt", "source", ".", "enable", "alias", "trap"})
"""What `cd` or a later command means is another thing after these."""


class Folders:
    """Where the next command could start, while the commands of a text are walked."""

    def __init__(self) -> None:
        self.now: States = ("",)
        """If what came before went well."""
        self.failed: States = ("",)
        """If it did not."""
        self.changed = False
        self.lost = False
        self._beside = 0

    @contextmanager
    def within(self, kind: str) -> Generator[None]:
        """Walk what is no plain list: a pipeline, a compound command of this kind, a substitution,
        or the text of another shell.
        """
        states, beside = self.now, self._beside
        # What a function's body does depends on where it is called.
        self.lost = self.lost or kind == "function"
        self._beside = 0 if kind in _ASIDE else beside + 1
        yield
        self._beside = beside
        if kind in _ASIDE:
            self.now = self.failed = states

    def step(self) -> None:
        """Go on to the next command, whatever became of the one before."""
        self.now = self.failed = self._joined(self.now, self.failed)

    def branch(self, if_failed: bool) -> tuple[bool, States]:
        """Go on to the second command of `&&`, or of `||` (`if_failed`). The answer is for
        `join`.
        """
        before = self.now if if_failed else self.failed
        self.now = self.failed = self.failed if if_failed else self.now
        return if_failed, before

    def join(self, before: tuple[bool, States]) -> None:
        """The end of `&&` or `||`: the second command ran, or it did not."""
        if_failed, states = before
        if if_failed:
            self.now = self._joined(states, self.now)
        else:
            self.failed = self._joined(states, self.failed)

    def follow(self, part: Part) -> None:
        """Take account of a command that stands in the place of the walk."""
        self.failed = self.now
        if any(assignment.startswith("CDPATH") for assignment in part.assignments):
            self.lost = True
        if part.target in _CHANGES_CD:
            self.lost = True
        if part.target not in MOVERS:
            return
        self.changed = True
        words = part.stripped[1:]
        by_shell = part.program in ("cd", "command", "builtin")
        plain = (
            part.target == "cd"
            and len(words) == 1
            and words[0].known
            and not words[0].text.startswith("-")
        )
        if self._beside or not plain or not by_shell:
            self.lost = True
            return
        self.now = tuple(dict.fromkeys(posixpath.join(state, words[0].text) for state in self.now))

    def _joined(self, first: States, second: States) -> States:
        if first == second:
            return first
        both = tuple(
            dict.fromkeys(posixpath.normpath(state) if state else "" for state in (*first, *second))
        )
        self.lost = self.lost or len(both) > _MOST
        return both


def comes_back(part: Part, root: str) -> bool:
    """True if a command surely starts where the whole line does, the folder `root`."""
    return part.folders is not None and absolute(part, root or "/.", []) == [root or "/."]


def absolute(part: Part, start: str, closure: list[str]) -> list[str]:
    """The folders where a command could start, as paths; `closure` if they are not known."""
    if part.folders is None:
        return closure
    return list(
        dict.fromkeys(posixpath.normpath(posixpath.join(start, folder)) for folder in part.folders)
    )
