"""Where a repository begins that a workspace belongs to.

The root is the nearest folder upward that holds `.git`, and the workspace itself where there is
none. Not looked above: the person's home, and a folder that somebody else owns or that everybody
may write to. Without the last rule a `/tmp/.git` of a stranger would make `/tmp` the root of every
folder below it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def repository_root(workspace: Path, home: Path | None = None) -> tuple[Path, str]:
    """The root, and why nothing above was considered (empty if that needs no word).

    `workspace` is absolute and without links; `home` is the person's. Raises nothing.
    """
    home = Path(os.path.realpath(home or Path.home()))
    if home != workspace and home.is_relative_to(workspace):
        return workspace, ""  # The workspace is above the home: so would be whatever is found.
    for folder in (workspace, *workspace.parents):
        if folder != workspace and not _trustworthy(folder):
            why = (
                f"`{folder}` belongs to somebody else or can be written by all, so nothing is "
                "read from it or above"
            )
            return workspace, why if _holds_git(folder) else ""
        if _holds_git(folder):
            return folder, ""
        if folder == home:
            break
    return workspace, ""


def _holds_git(folder: Path) -> bool:
    try:
        mode = (folder / ".git").lstat().st_mode
    except OSError:
        return False
    # A file in a worktree or a submodule; a link is nothing that git makes.
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def _trustworthy(folder: Path) -> bool:
    try:
        about = folder.lstat()
    except OSError:
        return False
    return about.st_uid in (os.getuid(), 0) and not about.st_mode & stat.S_IWOTH
