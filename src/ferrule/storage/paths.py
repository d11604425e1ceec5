"""Ferrule's own folders: the XDG folders, never inside a workspace.

`FERRULE_STATE`, `FERRULE_CONFIG` and `FERRULE_CACHE` replace a folder (absolute or starting with
`~`). Asking for a path touches nothing. Folders are created on the first write, readable by their
owner alone. An existing folder keeps its permissions, because a person may have chosen them.
"""

from __future__ import annotations

import os
from pathlib import Path

from ferrule.core.errors import FerruleError

from .xdg_folders import find_folder


def state() -> Path:
    """Return the folder for data that cannot be recreated: journal, trust, remembered rules."""
    return Path(find_folder("state"))


def config() -> Path:
    """Return the folder of the user's own `ferrule.yaml`."""
    return Path(find_folder("config"))


def cache() -> Path:
    """Return the folder for data that can be recreated or downloaded again."""
    return Path(find_folder("cache"))


def claude() -> Path:
    """Return the person's folder of Claude Code, whose hooks and instructions are read."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude").expanduser()


def default_journal() -> Path:
    """Return the path of the default journal, used where the settings name no other."""
    return state() / "journal.db"


def make_private_folder(path: Path) -> Path:
    """Create a folder (and its parents) with mode 0700 if it is missing, and return it.

    Raises:
        FerruleError: The folder cannot be created. The message names it.
    """
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise FerruleError(
            f"cannot create the folder `{path}`: {error.strerror}",
            code="folder",
            hint=(
                "set FERRULE_STATE (or FERRULE_CONFIG, FERRULE_CACHE) to a folder that you can "
                "write"
            ),
        ) from error
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a whole file with mode 0600: readers see the old text or the new one, never a mix."""
    make_private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(
        draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
