"""The workspace: every file that a tool touches is opened by descriptor beneath its root.

Modules:
    workspace        the folder that tools work in: look, read, write, move, delete
    paths            checks a path as text and makes it relative to the workspace
    open_beneath     opens folders without following links
    opened_files     opens files outside of a workspace, without waiting for pipes
    regular_files    opens and checks regular files
    atomic_write     replaces a file as a whole
    folder_trees     walks and removes folders, checks that all names of a file may be read
    kept_folder      puts files back that were kept of another workspace
    entry            what tools see of a file or folder
    os_errors        explains errors of the operating system to models
    gitignore        reads ignore files of git
    ignore_rules     applies ignore files of git to the names of a walk
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .workspace import Workspace

__all__ = ["Workspace"]

__getattr__, __dir__ = lazy_names(__name__, {".workspace": ("Workspace",)})
