"""Which installations outside a home's known folders commands need in order to run.

    places = find_environments(os.environ, home, root)

An interpreter and its packages may be anywhere: a virtual environment beside the project, a conda
environment in `/srv`, a Python, Node, Go, Rust or Java that a person unpacked themselves. What is
in use is known from PATH, from the variables that activating an environment sets, and from
`.venv` and the like in the workspace. A folder is opened only if it looks like what it is said to
be, and only the part of it that holds programs and libraries; so a repository's `pyvenv.cfg` can
name no other folder, and a project beside an environment stays unseen.

Not protected: a secret that somebody put among the packages of an environment in use.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ferrule.permissions.protected_names import DEFAULT_NAMES

from .layout import SYSTEM

VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT", "PYENV_VIRTUAL_ENV", "UV_PYTHON")
"""Variables that name the folder of an installation in use."""
IN_WORKSPACE = (".venv", "venv", "env", ".conda", ".pixi/envs/default")
"""Where environments of a project are."""

_PARTS = ("bin", "lib", "lib64", "include", "libexec", "share", "etc", "pyvenv.cfg")
_LIBRARIES = ("bin", "lib", "lib64", "include", "libexec")
_PROGRAM_FOLDERS = ("bin", "sbin", "shims", "scripts", "libexec", "condabin")
_SYSTEM = tuple(f"/{name}/" for name in (*SYSTEM, "dev", "proc", "sys", "run"))
_HOME_LINE = re.compile(r"^home\s*=\s*(\S.*?)\s*$", re.M)
_MAX_CONFIGURATION = 64 * 1024


def find_environments(variables: Mapping[str, str], home: str, root: str) -> tuple[str, ...]:
    """Return files and folders of installations in use that commands are to see, sorted.

    Args:
        variables: The environment of the commands, with their PATH.
        home: The person's home folder.
        root: The workspace.
    """
    search = _Search(Path(home), Path(root))
    for entry in variables.get("PATH", "").split(os.pathsep):
        search.add_program_folder(Path(entry))
    for name in VARIABLES:
        if variables.get(name):
            search.add_program_folder(Path(variables[name]) / "bin")
    for name in IN_WORKSPACE:
        search.add_program_folder(Path(root) / name / "bin")
    return tuple(sorted(search.found))


class _Search:
    def __init__(self, home: Path, root: Path) -> None:
        self._home = home
        self._root = root
        self.found: set[str] = set()

    def add_program_folder(self, folder: Path) -> None:
        """Add the installation that a folder of programs belongs to, else the folder alone."""
        if not folder.is_absolute() or not _is_folder(folder):
            return
        known = list(_parts_of_installation(folder))
        for place in known:
            self._add(place)
        if _is_file(folder.parent / "pyvenv.cfg"):
            for base in _base_folders(folder):
                for place in _parts_of_python(base):
                    self._add(place)
        if not known and self._is_plain_program_folder(folder):
            self._add(folder)

    def _add(self, place: Path) -> None:
        for path in (place, Path(os.path.realpath(place))):
            if self._may_be_opened(path):
                self.found.add(str(path))

    def _may_be_opened(self, path: Path) -> bool:
        """Whether a place may be opened, and whether that would change anything."""
        is_system = f"{os.path.realpath(path)}/".startswith(_SYSTEM)
        if is_system or len(path.parts) < 3 or path.is_relative_to(self._root):
            return False
        if self._home.is_relative_to(path) or self._root.is_relative_to(path):
            return False
        inside = path.relative_to(self._home) if path.is_relative_to(self._home) else path
        secret = any(
            DEFAULT_NAMES.check(part, write=False) is not None
            for part in inside.parts
            if part != "/"
        )
        return not secret and _is_owned(path)

    def _is_plain_program_folder(self, folder: Path) -> bool:
        if folder.name.lower() in _PROGRAM_FOLDERS:
            return True
        inside = folder.relative_to(self._home) if folder.is_relative_to(self._home) else folder
        return not any(part.startswith(".") for part in inside.parts)


def _parts_of_installation(folder: Path) -> Iterator[Path]:
    """Yield the parts of the installation whose programs are in a folder; none if it is none."""
    prefix = folder.parent
    if folder.name != "bin":
        return
    if _is_file(prefix / "pyvenv.cfg"):
        yield from _list_existing(prefix, _PARTS)
    elif _is_folder(prefix / "conda-meta") or _is_java(prefix) or _is_go(prefix):
        yield prefix
    elif _is_python(folder):
        yield from _parts_of_python(folder)
    elif _is_folder(prefix / "lib/node_modules") or _is_folder(prefix / "lib/rustlib"):
        yield from _list_existing(prefix, _LIBRARIES)


def _parts_of_python(folder: Path) -> Iterator[Path]:
    """Yield the parts of a Python installation, by the folder of its interpreter."""
    if _is_python(folder):
        yield from _list_existing(folder.parent, _LIBRARIES)


def _base_folders(folder: Path) -> Iterator[Path]:
    """Yield where the interpreter of a virtual environment may come from."""
    configuration = folder.parent / "pyvenv.cfg"
    try:
        with configuration.open("rb") as file:
            text = file.read(_MAX_CONFIGURATION).decode("utf-8", "replace")
    except OSError:
        text = ""
    named = _HOME_LINE.search(text)
    if named and named[1].startswith("/"):
        yield Path(named[1])
    yield Path(os.path.realpath(folder / "python")).parent


def _list_existing(prefix: Path, names: tuple[str, ...]) -> Iterator[Path]:
    return (prefix / name for name in names if os.path.exists(prefix / name))  # noqa: PTH110  as `_is_folder`


def _is_python(folder: Path) -> bool:
    has_interpreter = any(folder.glob("python3*"))
    return has_interpreter and any(folder.parent.glob("lib/python3.*/os.py"))


def _is_java(prefix: Path) -> bool:
    return _is_file(prefix / "bin/java") and _is_file(prefix / "release")


def _is_go(prefix: Path) -> bool:
    return _is_file(prefix / "bin/go") and _is_file(prefix / "VERSION")


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder that we can see.

    PATH names folders that are closed to us where it was inherited from another user, as `su` and
    CI systems do it. Until Python 3.14 `Path.is_dir` raises an error for these.
    """
    return os.path.isdir(path)  # noqa: PTH112  raises no error


def _is_file(path: Path) -> bool:
    """Whether a path is a file that we can see; see `_is_folder`."""
    return os.path.isfile(path)  # noqa: PTH113  raises no error


def _is_owned(path: Path) -> bool:
    """Whether the person or root owns a place, and nobody else can write it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (0, os.getuid()) and not status.st_mode & stat.S_IWOTH
