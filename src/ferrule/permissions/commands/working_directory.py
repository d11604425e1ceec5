"""The folder in which each command of a line starts, given the `cd`s before it.

    cd docs && make && cd .. && ls      `make` starts in `docs`, `ls` in the folder of the line
    cd docs; ls                         `ls` starts in `docs`, or in the line's if the `cd` failed

Lists (`;`, `&&`, `||`, newlines) and subshells are followed. After a `cd` anywhere else (in a loop,
a function, a pipeline or the text of another shell), or anything that changes what `cd` means, the
folder is *lost*: then every folder that any `cd` names is possible everywhere.
"""

from __future__ import annotations

import posixpath
from collections.abc import Generator
from contextlib import contextmanager

from .syntax import Part

States = tuple[str, ...]

_OWN_SHELL = frozenset({"subshell", "substitution"})
"""What runs in a shell of its own: a `cd` in it has no effect outside."""

_MAX_FOLDERS = 8
MOVERS = frozenset({"cd", "pushd", "popd"})
_CHANGES_CD = frozenset({"set", "shopt", "source", ".", "enable", "alias", "trap"})
"""Programs after which `cd` or later commands may mean something else."""


class Folders:
    """The folders in which the next command could start, while a text is walked."""

    def __init__(self) -> None:
        self.now: States = ("",)
        """If the command before succeeded."""
        self.failed: States = ("",)
        """If the command before failed."""
        self.changed = False
        """True if any command changed the folder."""
        self.lost = False
        """True if the folder is no longer known."""
        self._depth = 0

    @contextmanager
    def within(self, kind: str) -> Generator[None]:
        """Walk a pipeline, a compound command, a substitution, or the text of another shell."""
        before = self.now
        depth = self._depth
        # What a function's body does depends on where it is called.
        self.lost = self.lost or kind == "function"
        self._depth = 0 if kind in _OWN_SHELL else depth + 1
        yield
        self._depth = depth
        if kind in _OWN_SHELL:
            self.now = before
            self.failed = before

    def step(self) -> None:
        """Go on to the next command, whether the one before succeeded or failed."""
        joined = self._join_states(self.now, self.failed)
        self.now = joined
        self.failed = joined

    def branch(self, if_failed: bool) -> tuple[bool, States]:
        """Go on to the second command of `&&`, or of `||` (`if_failed`).

        Returns:
            What `join` needs.
        """
        if if_failed:
            skipped = self.now
            self.now = self.failed
        else:
            skipped = self.failed
            self.failed = self.now
        return if_failed, skipped

    def join(self, before: tuple[bool, States]) -> None:
        """End `&&` or `||`: the second command ran, or it was skipped."""
        if_failed, skipped = before
        if if_failed:
            self.now = self._join_states(skipped, self.now)
        else:
            self.failed = self._join_states(skipped, self.failed)

    def follow(self, part: Part) -> None:
        """Apply what a command does to the folder."""
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
        if self._depth or not plain or not by_shell:
            self.lost = True
            return
        self.now = tuple(dict.fromkeys(posixpath.join(state, words[0].text) for state in self.now))

    def _join_states(self, first: States, second: States) -> States:
        if first == second:
            return first
        normalised = [posixpath.normpath(state) if state else "" for state in (*first, *second)]
        both = tuple(dict.fromkeys(normalised))
        self.lost = self.lost or len(both) > _MAX_FOLDERS
        return both


def comes_back(part: Part, root: str) -> bool:
    """Return whether a command certainly starts in `root`, where the whole line starts."""
    return part.folders is not None and absolute(part, root or "/.", []) == [root or "/."]


def absolute(part: Part, start: str, closure: list[str]) -> list[str]:
    """Return the folders in which a command could start, as paths; `closure` if unknown."""
    if part.folders is None:
        return closure
    paths = [posixpath.normpath(posixpath.join(start, folder)) for folder in part.folders]
    return list(dict.fromkeys(paths))
