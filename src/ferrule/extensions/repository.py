"""Find the root of the repository that a workspace belongs to.

The root is the nearest folder upward that holds `.git`, or the workspace itself where there is
none. The search never goes above the person's home, nor into a folder that somebody else owns or
that everybody may write to. Without the last rule, a stranger's `/tmp/.git` would make `/tmp` the
root of every folder below it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def find_repository_root(workspace: Path, home: Path | None = None) -> tuple[Path, str]:
    """Return the root of a workspace's repository, and why the search stopped early (or "").

    Never raises.

    Args:
        workspace: An absolute path without links.
        home: The person's home folder. Default: that of this process.
    """
    home = Path(os.path.realpath(home or Path.home()))
    if home != workspace and home.is_relative_to(workspace):
        return workspace, ""  # Anything found would be above the home, too.
    for folder in (workspace, *workspace.parents):
        if folder != workspace and not _is_trustworthy(folder):
            if not _has_git(folder):
                return workspace, ""
            why = (
                f"`{folder}` belongs to somebody else or can be written by all, so nothing is "
                "read from it or above"
            )
            return workspace, why
        if _has_git(folder):
            return folder, ""
        if folder == home:
            break
    return workspace, ""


def _has_git(folder: Path) -> bool:
    try:
        mode = (folder / ".git").lstat().st_mode
    except OSError:
        return False
    # A worktree or submodule has a file here. Git never makes a link.
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def _is_trustworthy(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & stat.S_IWOTH
