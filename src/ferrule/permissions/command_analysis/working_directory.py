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

from .syntax import CommandPart

States = tuple[str, ...]

_OWN_SHELL = frozenset({"subshell", "substitution"})
"""What runs in a shell of its own: a `cd` in it has no effect outside."""

_MAX_FOLDERS = 8
DIRECTORY_COMMANDS = frozenset({"cd", "pushd", "popd"})
_CHANGES_CD = frozenset({"set", "shopt", "source", ".", "enable", "alias", "trap"})
"""Programs after which `cd` or later commands may mean something else."""


class WorkingDirectory:
    """The folders in which the next command could start, while a text is walked."""

    def __init__(self) -> None:
        self.if_succeeded: States = ("",)
        """If the command before succeeded."""
        self.if_failed: States = ("",)
        """If the command before failed."""
        self.is_changed = False
        """True if any command changed the folder."""
        self.is_lost = False
        """True if the folder is no longer known."""
        self._depth = 0

    @contextmanager
    def within(self, kind: str) -> Generator[None]:
        """Walk a pipeline, a compound command, a substitution, or the text of another shell."""
        before = self.if_succeeded
        depth = self._depth
        # What a function's body does depends on where it is called.
        self.is_lost = self.is_lost or kind == "function"
        self._depth = 0 if kind in _OWN_SHELL else depth + 1
        yield
        self._depth = depth
        if kind in _OWN_SHELL:
            self.if_succeeded = before
            self.if_failed = before

    def step(self) -> None:
        """Go on to the next command, whether the one before succeeded or failed."""
        joined = self._join_states(self.if_succeeded, self.if_failed)
        self.if_succeeded = joined
        self.if_failed = joined

    def branch(self, if_failed: bool) -> tuple[bool, States]:
        """Go on to the second command of `&&`, or of `||` (`if_failed`).

        Returns:
            What `join` needs.
        """
        if if_failed:
            skipped = self.if_succeeded
            self.if_succeeded = self.if_failed
        else:
            skipped = self.if_failed
            self.if_failed = self.if_succeeded
        return if_failed, skipped

    def join(self, before: tuple[bool, States]) -> None:
        """End `&&` or `||`: the second command ran, or it was skipped."""
        if_failed, skipped = before
        if if_failed:
            self.if_succeeded = self._join_states(skipped, self.if_succeeded)
        else:
            self.if_failed = self._join_states(skipped, self.if_failed)

    def follow(self, part: CommandPart) -> None:
        """Apply what a command does to the folder."""
        self.if_failed = self.if_succeeded
        if any(assignment.startswith("CDPATH") for assignment in part.assignments):
            self.is_lost = True
        if part.wrapped_program in _CHANGES_CD:
            self.is_lost = True
        if part.wrapped_program not in DIRECTORY_COMMANDS:
            return
        self.is_changed = True
        words = part.words_after_wrappers[1:]
        by_shell = part.program in ("cd", "command", "builtin")
        plain = (
            part.wrapped_program == "cd"
            and len(words) == 1
            and words[0].is_known
            and not words[0].text.startswith("-")
        )
        if self._depth or not plain or not by_shell:
            self.is_lost = True
            return
        self.if_succeeded = tuple(
            dict.fromkeys(posixpath.join(state, words[0].text) for state in self.if_succeeded)
        )

    def _join_states(self, first: States, second: States) -> States:
        if first == second:
            return first
        normalised = [posixpath.normpath(state) if state else "" for state in (*first, *second)]
        both = tuple(dict.fromkeys(normalised))
        self.is_lost = self.is_lost or len(both) > _MAX_FOLDERS
        return both


def absolute_folders(part: CommandPart, start: str, closure: list[str]) -> list[str]:
    """Return the folders in which a command could start, as paths; `closure` if unknown."""
    if part.folders is None:
        return closure
    paths = [posixpath.normpath(posixpath.join(start, folder)) for folder in part.folders]
    return list(dict.fromkeys(paths))
