"""Say what a command could not see of a program that exists, and the line that opens it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from ferrule.core.lazy_patterns import compile_lazily

_SHEBANG = compile_lazily(rb"#!\s*(\S+)(?:\s+(\S+))?")
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/nix/", "/etc/")
"""What every command sees."""
_PROGRAM_FOLDERS = ("bin", "sbin", "Scripts")


def explain_unseen(program: str) -> str:
    """Explain why a program that exists was not found inside the sandbox, and how to open it.

    Args:
        program: The program's absolute path.
    """
    listed = json.dumps(folders_of(program), ensure_ascii=False)
    return (
        f"{name_unseen(program)} out of sight for commands; a person can open the folders by "
        f"`sandbox: {{readable: {listed}}}` in their own settings"
    )


def name_unseen(program: str) -> str:
    """Return the files that are not seen and the verb: ``"`a` and `b` are"``."""
    unseen = _unseen_files(program)
    files = " and ".join(f"`{path}`" for path in unseen)
    return f"{files} {'is' if len(unseen) == 1 else 'are'}"


def folders_of(program: str) -> list[str]:
    """Return the folders that commands must see for a program to run, and do not."""
    return list(dict.fromkeys(map(_folder_to_open, _unseen_files(program))))


def _unseen_files(program: str) -> list[str]:
    needed = dict.fromkeys(_needed_files(program))
    return [path for path in needed if not path.startswith(_SYSTEM)] or [program]


def _needed_files(program: str) -> Iterator[str]:
    """Yield the file of a program, where its link leads, and its interpreter."""
    yield program
    real = os.path.realpath(program)
    if real != program:
        yield real
    interpreter = _read_interpreter(program)
    if interpreter and os.path.exists(interpreter):  # noqa: PTH110  names of programs are text
        yield interpreter
        if os.path.realpath(interpreter) != interpreter:
            yield os.path.realpath(interpreter)


def _read_interpreter(program: str) -> str:
    """Return the interpreter that a script's first line names, or ""."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123  names of programs are text
            match = _SHEBANG.match(file.read(512))
    except OSError:
        return ""
    if match is None:
        return ""
    named = os.fsdecode(match[1])
    return "" if Path(named).name == "env" else named


def _folder_to_open(path: str) -> str:
    """Return the smallest folder that makes a program run: its installation, else its folder."""
    folder = Path(path).parent
    home = Path.home()
    prefix = folder.parent
    is_installation = folder.name in _PROGRAM_FOLDERS and not home.is_relative_to(prefix)
    return str(prefix if is_installation and len(prefix.parts) > 2 else folder)
