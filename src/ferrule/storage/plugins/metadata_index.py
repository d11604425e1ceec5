"""Which installed distributions bring plugins, remembered by the folders that they are in.

Reading the metadata of 200 distributions takes 5 ms, and every command asks. So the names of those
with plugins are kept in Ferrule's state folder, where commands cannot write, beside the time at
which each folder of `sys.path` last changed; pip changes it whenever it installs or removes.
Metadata and manifests themselves are read each time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from ferrule.storage.xdg_folders import find_folder

HEADER = b"[ferrule.plugins]"

_FILE = "installed-plugins.json"
_MOST_FOLDERS = 100
_SETTLED_NANOSECONDS = 2_000_000_000
"""How old a change must be: a later one can have the same time as a fresh one."""


def find_metadata() -> list[tuple[str, str]]:
    """Return the `*.dist-info` that have plugins: the folder of `sys.path`, and the name in it."""
    file = os.path.join(find_folder("state"), _FILE)
    known = _read(file)
    fresh: dict[str, Any] = {}
    found: list[tuple[str, str]] = []
    for folder in dict.fromkeys(os.path.abspath(one) for one in sys.path):
        try:
            changed = os.stat(folder).st_mtime_ns
        except OSError:
            continue
        kept = known.get(folder)
        if kept and kept["changed"] == changed:
            names = kept["names"]
        else:
            names = list(_search(folder))
            if time.time_ns() - changed > _SETTLED_NANOSECONDS:
                fresh[folder] = {"changed": changed, "names": names}
        found += ((folder, name) for name in names)
    if fresh:
        kept_folders = known if len(known) + len(fresh) <= _MOST_FOLDERS else {}
        _write(file, {**kept_folders, **fresh})
    return found


def _search(folder: str) -> Iterator[str]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".dist-info"))
    except OSError:
        return  # An archive.
    for name in names:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                data = file.read()
        except OSError:
            continue
        if HEADER in data:
            yield name


def _read(file: str) -> dict[str, Any]:
    """Return the kept folders; none if the file is missing or is not ours."""
    try:
        with open(file, encoding="utf-8") as stream:
            found = json.load(stream)
        return {
            folder: {"changed": int(one["changed"]), "names": [str(name) for name in one["names"]]}
            for folder, one in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return {}


def _write(file: str, folders: dict[str, Any]) -> None:
    """Keep the folders. A state folder that is not there, or cannot be written, stays so."""
    draft = f"{file}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "w", encoding="utf-8") as stream:
            json.dump(folders, stream)
        os.replace(draft, file)
    except OSError:
        return
