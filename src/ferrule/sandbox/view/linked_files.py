"""Which files with several names are covered: those with names elsewhere, and secrets.

A file that has more names than were met in the workspace may be any file of the person's. Package
managers link files from their caches, and a local clone links objects of the other repository:
below `PACKAGES` a file is covered only if it is the same as a known secret.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ferrule.core.value_class import frozen

PACKAGES = frozenset(
    {
        "node_modules",
        "site-packages",
        "dist-packages",
        "bower_components",
        ".pnpm-store",
        ".yarn",
        ".tox",
        ".nox",
    }
)
"""Folders that package managers fill."""

CONDA = "conda-meta"
"""What is at the root of a conda environment: everything in it may be linked."""

SECRET_PLACES = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker/config.json",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".gitconfig",
    ".config/git/credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".password-store",
    ".vault-token",
    ".local/share/keyrings",
    ".env",
    ".config/ferrule",
    ".local/state/ferrule",
    ".terraform.d",
    ".config/rclone",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".mozilla",
    ".config/google-chrome",
)
"""Where people keep secrets, below their home."""

_MAX_ENTRIES = 5_000
"""Entries of these places that are looked at."""


Inode = tuple[int, int]
"""Device and inode number."""


@frozen
class Link:
    """A file with `count` names, one of which is `name`. Its content is that of `inode`."""

    name: str
    inode: Inode
    count: int


def links_to_cover(
    links: list[Link],
    secret: frozenset[Inode],
    environments: frozenset[str],
    known: Callable[[], frozenset[Inode]],
) -> tuple[list[Link], list[Link]]:
    """Return the links to cover: those of a secret, and those with other names elsewhere.

    Args:
        links: All files with several names that were met.
        secret: The inodes of covered files.
        environments: The roots of conda environments, relative (empty: all of it is one).
        known: Returns the known secrets; called only if they matter.
    """
    name_counts = Counter(link.inode for link in links)
    linked_elsewhere = [
        link for link in links if name_counts[link.inode] < link.count and link.inode not in secret
    ]
    packaged = [link for link in linked_elsewhere if _is_packaged(link.name, environments)]
    packaged_names = {link.name for link in packaged}
    if packaged:
        secret |= known()
    certain = [link for link in links if link.inode in secret]
    return certain, [
        link
        for link in linked_elsewhere
        if link.name not in packaged_names and link.inode not in secret
    ]


def _is_packaged(name: str, environments: frozenset[str]) -> bool:
    above = name.split("/")[:-1]
    if not PACKAGES.isdisjoint(above) or ".git/objects/" in name or ".git/lfs/objects/" in name:
        return True
    return bool(environments) and any(
        "/".join(above[:depth]) in environments for depth in range(len(above) + 1)
    )


def known_secrets(home: Path, hidden: Iterable[Path]) -> frozenset[Inode]:
    """Return the inodes of secret files with several names.

    They are looked for in the well-known places and in folders that commands cannot see.
    """
    found: set[Inode] = set()
    left = _MAX_ENTRIES
    for place in (*(home / name for name in SECRET_PLACES), *hidden):
        for status in _files(place):
            left -= 1
            if status.st_nlink > 1:
                found.add((status.st_dev, status.st_ino))
            if left <= 0:
                return frozenset(found)
    return frozenset(found)


def _files(place: Path) -> Iterator[os.stat_result]:
    """Yield regular files at or below a place. No link is followed."""
    waiting = [os.fspath(place)]
    while waiting:
        path = waiting.pop()
        # Not there, or not readable: then it is not the person's to lose here.
        with suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                yield status
            elif stat.S_ISDIR(status.st_mode):
                waiting += [os.path.join(path, name) for name in os.listdir(path)]  # noqa: PTH118, PTH208 - hot
