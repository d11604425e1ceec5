"""The state of one call of a git tool while it runs, so that a failure has a receipt as well.

An `Attempt` is made for each call and reaches the operation as a resource of its context.
Operations that change something name their workbench (`watch`); then the branches are read before
and after, from the files that git keeps them in. References other than the checked-out one are
compared only up to `MOST` of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.tools.context import Context

from .readable_repository import RealRepository, read_small_file
from .run import GitRunner

MAX_REFERENCES = 2000
"""Most references that are read."""
_MAX_SHOWN = 20
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_NAME = 300

_CATEGORIES = {
    ErrorType.PERMISSION_DENIED: "refused",
    ErrorType.VALIDATION_FAILED: "refused",
    ErrorType.NOT_FOUND: "not_found",
    ErrorType.TIMEOUT: "timeout",
    ErrorType.LIMIT: "limit",
}


@dataclass(slots=True)
class Attempt:
    """One call. An operation sets `category` if it knows better than its error how it ended."""

    git: GitRunner | None = None
    category: str = ""
    _before: dict[str, str] | None = None
    _after: dict[str, str] | None = None

    @staticmethod
    def from_context(context: Context) -> Attempt:
        """Return the attempt of this call."""
        found = context.resources.get(Attempt)
        return found if isinstance(found, Attempt) else Attempt()

    def watch_references(self, real: RealRepository, leaving: list[Callable[[], None]]) -> None:
        """Note the references of a repository now, and when the workbench is left."""
        self._before = read_references(real)

        def read_again() -> None:
            self._after = read_references(real)

        leaving.append(read_again)

    @property
    def refs(self) -> dict[str, dict[str, str | None]] | None:
        """`HEAD` before and after, and every other reference that differs.

        None if nothing was opened to be changed.
        """
        if self._before is None:
            return None
        before = self._before
        after = before if self._after is None else self._after
        differing = sorted(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        )
        names = ["HEAD", *(name for name in differing if name != "HEAD")][: _MAX_SHOWN + 1]
        return {
            "before": {name: before.get(name) for name in names},
            "after": {name: after.get(name) for name in names},
        }

    def describe_end(self, failure: ToolFailed) -> dict[str, Any]:
        """Return how the call ended, for the receipt of a failure."""
        last = self.git.results[-1] if self.git is not None and self.git.results else None
        return {
            "status": "failed",
            "exit_category": self.category or _CATEGORIES.get(failure.error_type, "failed"),
            "exit_code": None if last is None else last.code,
            "argv": [] if last is None else list(last.argv),
        }


def read_references(real: RealRepository) -> dict[str, str]:
    """Return ids by full name, and `HEAD` as the id it stands for.

    For a branch without commits, `HEAD` is the name of the branch.
    """
    found = _read_packed(real.common)
    try:
        for folder, _, names, descriptor in os.fwalk(
            "refs", dir_fd=real.common, follow_symlinks=False
        ):
            for name in names:
                if len(found) >= MAX_REFERENCES:
                    break
                _add_reference(found, f"{folder}/{name}", read_small_file(descriptor, name))
    except OSError:
        pass  # A folder was removed while it was read: what was found is kept.
    head = real.read("HEAD").decode("utf-8", "replace").strip()
    branch = head.removeprefix("ref: ")
    if branch.startswith("refs/heads/"):
        # Read even if there are more references than the limit.
        _add_reference(found, branch, real.read(branch))
    return {"HEAD": found.get(branch, head), **found}


def _read_packed(real: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (
        read_small_file(real, "packed-refs")
        .decode("utf-8", "replace")
        .splitlines()[:MAX_REFERENCES]
    ):
        identifier, _, name = line.partition(" ")
        _add_reference(found, name, identifier.encode())
    return found


def _add_reference(found: dict[str, str], name: str, content: bytes) -> None:
    text = content.decode("ascii", "replace").strip()
    if _ID.fullmatch(text) and name.isprintable() and len(name) <= _MAX_NAME:
        found[name] = text
