"""The flags that a C or C++ file is compiled with, as far as its diagnostics depend on them.

They are read from `compile_commands.json`, at the top of the workspace or in `build`, or else from
`compile_flags.txt`, as clangd reads them. Only what names folders, macros, the standard and
warnings is taken: the compiler that such a file names is not run, and no flag that loads a plug-in,
starts a program or writes a file is passed on.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import parse_json

FLAGS_FILE = "compile_flags.txt"
DATABASES = ("compile_commands.json", "build/compile_commands.json")
SIZE_LIMIT = 32 << 20
"""Most bytes of a database."""

_WITH_PATH = re.compile(r"(-I|-isystem|-iquote|-idirafter|-include|-imacros)(.*)", re.DOTALL)
_WITH_NAME = re.compile(r"(-D|-U)(.*)", re.DOTALL)
_ALONE = re.compile(r"-std=[a-z0-9+:]+|-W[a-z][a-z0-9+=-]*|-w|-pedantic(-errors)?|-ansi|-m32|-m64")
"""Without `-Wp,…`, `-Wl,…` and `-Wa,…`, which hand what follows to another program."""


def find_flags(file: str, root: Path, read: Callable[[str], str | None]) -> list[str] | None:
    """Return the flags for a file; None if the project does not say how it is compiled.

    Args:
        file: The file, relative to `root`.
        root: The workspace.
        read: Returns the content of a file of the workspace; None if there is none.
    """
    for name in DATABASES:
        text = read(name)
        if text is not None:
            return _find_in_database(text, root / file, root / name)
    text = read(FLAGS_FILE)
    return None if text is None else list(_select(_split(text), root))


def _find_in_database(text: str, file: Path, database: Path) -> list[str] | None:
    try:
        entries = parse_json(text)
    except ValueError:
        return None
    for entry in cast("list[Any]", entries) if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        fields = cast("dict[str, Any]", entry)
        folder = database.parent / str(fields.get("directory", ""))
        if os.path.normpath(folder / str(fields.get("file", ""))) == str(file):
            return list(_select(_read_arguments(fields), folder))
    return None


def _read_arguments(entry: dict[str, Any]) -> list[str]:
    arguments = entry.get("arguments")
    if isinstance(arguments, list):
        return [one for one in cast("list[Any]", arguments) if isinstance(one, str)]
    return _split(str(entry.get("command", "")))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _select(arguments: Iterable[str], folder: Path) -> Iterator[str]:
    """Yield the flags that may be passed on; their paths start at `folder`."""
    rest = iter(arguments)
    for flag in rest:
        if found := _WITH_PATH.fullmatch(flag):
            path = found[2] or next(rest, "")
            if path and not path.startswith("-"):
                yield from (found[1], str(folder / path))
        elif found := _WITH_NAME.fullmatch(flag):
            name = found[2] or next(rest, "")
            if name:
                yield f"{found[1]}{name}"
        elif _ALONE.fullmatch(flag):
            yield flag
