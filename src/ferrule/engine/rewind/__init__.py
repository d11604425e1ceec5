"""Go back to an earlier point of a session, with the files that its tools have changed since.

Modules: `changes`, `file_copies`, `rewind`, `snapshots`, `states`, `workspace_scan`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .changes import diff_files
    from .file_copies import FileCopies
    from .rewind import RestoreReport, RewindPoint, fork, plan_rewind, restore_files

__all__ = [
    "FileCopies",
    "RestoreReport",
    "RewindPoint",
    "diff_files",
    "fork",
    "plan_rewind",
    "restore_files",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".changes": ("diff_files",),
        ".file_copies": ("FileCopies",),
        ".rewind": ("RestoreReport", "RewindPoint", "fork", "plan_rewind", "restore_files"),
    },
)
