"""Where Ferrule's own folders are, as text: the XDG folders on every system, or a variable's.

It loads nothing but `os` and the errors, for what `ferrule --help` asks. `paths` has the folders
for everybody else.
"""

from __future__ import annotations

import os
from typing import Literal

from ferrule.core.errors import ConfigError

FolderKind = Literal["state", "config", "cache"]

_DEFAULTS: dict[FolderKind, str] = {
    "state": "~/.local/state",
    "config": "~/.config",
    "cache": "~/.cache",
}


def find_folder(kind: FolderKind) -> str:
    """Return the path of a folder. Nothing is touched.

    Raises:
        ConfigError: A variable of Ferrule names a relative path.
    """
    name = f"FERRULE_{kind.upper()}"
    override = os.environ.get(name)
    if override:
        path = os.path.expanduser(override)
        if not os.path.isabs(path):
            raise ConfigError(f"{name} = `{override}` is not an absolute path")
        return path
    base = os.environ.get(f"XDG_{kind.upper()}_HOME", "").strip()
    if not os.path.isabs(base):
        base = os.path.expanduser(_DEFAULTS[kind])
    return os.path.join(base, "ferrule")
