"""What is laid over a repository beyond the names that are protected everywhere.

Commands in a linked worktree, a submodule or a subfolder use the repository that it belongs to
(`permissions.repositories`): objects, refs and logs are written there, hooks and settings are
covered by their names. Besides:

* the entries in `worktrees` of other work trees are read-only, and so are HEAD and the index of the
  main one: `git worktree prune` would take for gone what commands do not see;
* folders that are none of git's are as empty as if nothing were opened: a bare repository may have
  other work trees in it;
* what settings name as a place of hooks, attributes or further settings is read-only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ferrule.permissions.repositories import Repository, read_text

from .masks import Mask, MaskKind

_GIT_FOLDERS = frozenset(
    {
        "annex",
        "branches",
        "hooks",
        "info",
        "lfs",
        "logs",
        "modules",
        "objects",
        "rebase-apply",
        "rebase-merge",
        "refs",
        "reftable",
        "rr-cache",
        "sequencer",
        "worktrees",
    }
)
"""Folders of a repository: gitrepository-layout(5), git-lfs and git-annex."""


def find_foreign_folders(repository: Repository, root: str) -> Iterator[str]:
    """Yield the folders in a repository outside the workspace that are none of git's."""
    common = repository.common_dir
    if _is_in(common, root):
        return
    for name, mode in _list(common):
        path = f"{common}/{name}"
        if stat.S_ISDIR(mode) and name not in _GIT_FOLDERS and not _is_in(root, path):
            yield path


def mask_repository(repository: Repository, root: str) -> Iterator[Mask]:
    """Yield what is laid over a repository so that other work trees stay as they are."""
    common = repository.common_dir
    for path in find_foreign_folders(repository, root):
        yield Mask(path, MaskKind.EMPTY_FOLDER)
    for name, mode in _list(f"{common}/worktrees"):
        path = f"{common}/worktrees/{name}"
        checkout = os.path.dirname(read_text(f"{path}/gitdir").strip())  # noqa: PTH120  text
        is_seen = _is_in(os.path.realpath(Path(path, checkout)), root)
        if stat.S_ISDIR(mode) and path != repository.git_dir and not is_seen:
            yield Mask(path, MaskKind.READ_ONLY)
    if repository.git_dir != common:
        for name in ("HEAD", "index"):
            if _is_file(f"{common}/{name}"):
                yield Mask(f"{common}/{name}", MaskKind.READ_ONLY)


def mask_places(places: Iterable[str], opened: Iterable[str]) -> Iterator[Mask]:
    """Yield what is laid over places that settings name, where commands could write them."""
    folders = tuple(opened)
    for place in places:
        is_opened = any(_is_in(place, folder) and place != folder for folder in folders)
        if is_opened and (_is_file(place) or Path(place).is_dir()):
            yield Mask(place, MaskKind.READ_ONLY)


def _list(folder: str) -> list[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            found = [(one.name, one.stat(follow_symlinks=False).st_mode) for one in entries]
    except OSError:
        return []
    return sorted(found)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
