"""Writes the files of a new project or tool: all of them or none, below one folder, through no
link, over nothing unasked.

Others may have filled the folder (a clone): a link in it could lead anywhere, so each folder on the
way is opened by descriptor and none is followed. Not protected: a file that appears between the
look and the write ends the writing with an error, and what was written before it stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ferrule.core.errors import ConfigError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def there(root: Path, names: Iterable[str]) -> list[str]:
    """Which of these files are there already, links that lead nowhere included. Raises ConfigError
    for a link on the way to one.
    """
    names = list(names)
    for name in names:
        for part in list(Path(name).parents)[:-1]:
            if (root / part).is_symlink():
                raise ConfigError(f"`{root / part}` is a link; nothing was written through it")
    return [name for name in names if os.path.lexists(root / name)]


def write_new(
    root: Path, files: Mapping[str, str], *, replace: bool = False, hint: str = ""
) -> list[str]:
    """Write these texts (by their names below `root`, which is made); the names of those that were
    replaced.

    Without `replace` nothing is written if one is there. Raises ConfigError naming all that are, or
    what could not be written.
    """
    taken = there(root, files)
    if taken and not replace:
        listed = ", ".join(f"`{root / name}`" for name in taken)
        raise ConfigError(
            f"{listed} exist{'s' if len(taken) == 1 else ''}; nothing was written",
            code="exists",
            hint=hint or "choose another name, or change the file that is there",
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        # The folder itself is the person's word: it may be a link.
        base = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name, text in files.items():
                _write(base, name, text, replace=name in taken)
        finally:
            os.close(base)
    except OSError as error:
        raise ConfigError(
            f"cannot write below `{root}`: {error.strerror}: `{error.filename}`"
        ) from error
    return taken


def _write(base: int, name: str, text: str, *, replace: bool) -> None:
    *folders, last = name.split("/")
    at = os.dup(base)
    try:
        for folder in folders:
            at = _below(at, folder)
        if replace:
            os.unlink(last, dir_fd=at)
        with os.fdopen(os.open(last, _NEW, 0o644, dir_fd=at), "w", encoding="utf-8") as file:
            file.write(text)
    finally:
        os.close(at)


def _below(at: int, folder: str) -> int:
    """The folder, made if it is missing; `at` is closed."""
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o755, dir_fd=at)
        return os.open(folder, _FOLDER, dir_fd=at)
    finally:
        os.close(at)
