"""Write the files of a new project or tool below one folder, following no link.

All files are written or none, and existing ones are replaced only on request. Others may have
filled the folder (a clone), and a link in it could lead anywhere, so each folder below it is opened
by descriptor and no link is followed. Not protected: a file that appears between the check and the
write ends the writing with an error, and what was written before it stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.permissions.provenance import CommandWritable, find_first_link

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def find_existing(root: Path, names: Iterable[str]) -> list[str]:
    """Return the names of those files that exist already, dangling links included.

    Raises:
        ConfigError: A folder on the way to a file is a link.
    """
    names = list(names)
    for name in names:
        for folder in list(Path(name).parents)[:-1]:
            if (root / folder).is_symlink():
                raise ConfigError(f"`{root / folder}` is a link; nothing was written through it")
    return [name for name in names if os.path.lexists(root / name)]


def write_new_files(
    root: Path, files: Mapping[str, str], *, replace: bool = False, hint: str = ""
) -> list[str]:
    """Write new text files below `root`, which is created if it is missing.

    Args:
        root: The folder; it may itself be a link, since the person named it.
        files: The texts by their names below `root`.
        replace: Replace existing files. Otherwise nothing is written if one exists.
        hint: The hint of the error for existing files.

    Returns:
        The names of the files that were replaced.

    Raises:
        ConfigError: Files exist (it names all of them), or one could not be written.
    """
    taken = find_existing(root, files)
    if taken and not replace:
        existing = ", ".join(f"`{root / name}`" for name in taken)
        verb = "exists" if len(taken) == 1 else "exist"
        raise ConfigError(
            f"{existing} {verb}; nothing was written",
            code="exists",
            hint=hint or "choose another name, or change the existing file",
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
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


def write_named_file(path: Path, text: str) -> None:
    """Write a text to a file that a person named, but through no link in the current folder.

    Raises:
        ConfigError: There is such a link, or the file cannot be written.
    """
    check_named_file(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}") from error


def check_named_file(path: str | Path) -> None:
    """Refuse a name that leads through a link in the current folder.

    A command may have made it: it could lead to a file of the person's.

    Raises:
        ConfigError: There is such a link.
    """
    named = os.path.abspath(path)  # noqa: PTH100  its `..` is not resolved through links
    link = find_first_link(named, CommandWritable.from_current_folder().folders)
    if link is not None:
        raise ConfigError(
            f"`{path}` was not written: `{link}` is a link, which a command may have made",
            hint="remove the link, or name the file that it leads to",
        )


def _write(base: int, name: str, text: str, *, replace: bool) -> None:
    *folders, file_name = name.split("/")
    parent = os.dup(base)
    try:
        for folder in folders:
            parent = _open_folder(parent, folder)
        if replace:
            os.unlink(file_name, dir_fd=parent)
        descriptor = os.open(file_name, _NEW, 0o644, dir_fd=parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    finally:
        os.close(parent)


def _open_folder(parent: int, folder: str) -> int:
    """Open a folder, creating it if it is missing. Closes `parent`."""
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o755, dir_fd=parent)
        return os.open(folder, _FOLDER, dir_fd=parent)
    finally:
        os.close(parent)
