"""Which installations outside a home's known folders commands need in order to run.

    binds = find_environments(os.environ, home, root, writable)

An interpreter and its packages may be anywhere: a virtual environment beside the project, a conda
environment in `/srv`, a Python, Node, Go, Rust or Java that a person unpacked themselves. What is
in use is known from PATH, from the variables that activating an environment sets, and from
`.venv` and the like in the workspace. A folder is opened only if it looks like what it is said to
be, and only the part of it that holds programs and libraries; so a project beside an environment
stays unseen.

What commands can write, or a repository brought, decides next to nothing. An environment in the
workspace is seen with the workspace and opens nothing by its folders and links. Its `pyvenv.cfg`
names the Python that it was made with: of that `bin`, `lib`, `include` and `libexec` are opened if
it is a real installation of Python outside of what commands can write, that belongs to the person
or to root, and in no hidden folder of a home but those that interpreters are installed into. No
link in an environment is followed out of it, wherever the environment is.

Not protected: a secret that somebody put among the packages of an environment in use.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.permissions.provenance import CommandWritable, Origin

from .layout import SYSTEM
from .toolchains import TOOLCHAINS, ReadOnlyBind, make_bind

VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT", "PYENV_VIRTUAL_ENV", "UV_PYTHON")
"""Variables that name the folder of an installation in use."""
IN_WORKSPACE = (".venv", "venv", "env", ".conda", ".pixi/envs/default")
"""Where environments of a project are."""

_PARTS = ("bin", "lib", "lib64", "include", "libexec", "share", "etc", "pyvenv.cfg")
_LIBRARIES = ("bin", "lib", "lib64", "include", "libexec")
_PROGRAM_FOLDERS = ("bin", "sbin", "shims", "scripts", "libexec", "condabin")
_SYSTEM = tuple(f"/{name}/" for name in (*SYSTEM, "dev", "proc", "sys", "run"))
_BASE_LINE = re.compile(r"^(home|executable|base-executable)\s*=\s*(/[^\x00\n]*?)\s*$", re.M)
_MAX_CONFIGURATION = 64 * 1024


def find_environments(
    variables: Mapping[str, str], home: str, root: str, writable: CommandWritable
) -> tuple[ReadOnlyBind, ...]:
    """Return files and folders of installations in use that commands are to see, sorted.

    Args:
        variables: The environment of the commands, with their PATH.
        home: The person's home folder.
        root: The workspace.
        writable: What commands can write.
    """
    search = _Search(Path(home), Path(root), writable)
    named = [(entry, "PATH") for entry in variables.get("PATH", "").split(os.pathsep)]
    named += [(f"{variables[name]}/bin", name) for name in VARIABLES if variables.get(name)]
    for folder, name in named:
        with suppress(OSError):  # a name that is too long, or a folder that nobody may look into
            search.add_program_folder(Path(folder), name)
    for name in IN_WORKSPACE:
        with suppress(OSError):
            search.add_base_of(Path(root, name, "bin"))
    return tuple(search.found[place] for place in sorted(search.found))


class _Search:
    def __init__(self, home: Path, root: Path, writable: CommandWritable) -> None:
        self._home = home
        self._root = root
        self._writable = writable
        self.found: dict[str, ReadOnlyBind] = {}

    def add_program_folder(self, folder: Path, named_by: str) -> None:
        """Add the installation that a folder of programs belongs to, else the folder alone.

        Of one that commands can write only the interpreter that it was made with is added.
        """
        if not folder.is_absolute() or not _is_folder(folder):
            return
        self.add_base_of(folder)
        if self._writable.contains(str(folder)):
            return
        reason = f"named by {named_by}"
        real = Path(os.path.realpath(folder))
        parts = list(_parts_of_installation(real))
        for part in parts:
            self._add(part, reason)
            named = folder.parent / part.name
            if os.path.realpath(named) == str(part):
                self._add(named, reason)
        if not parts and self._is_plain_program_folder(folder):
            self._add(folder, reason)
            self._add(real, reason)

    def add_base_of(self, folder: Path) -> None:
        """Add the interpreter that a virtual environment was made with, if it is a real one."""
        configuration = folder.parent / "pyvenv.cfg"
        for base in dict.fromkeys(_list_bases(configuration)):
            real = Path(os.path.realpath(base))
            if self._is_trusted_python(real):
                reason = f"the interpreter of `{folder.parent}`"
                for place in dict.fromkeys((real, base)):
                    for part in _list_parts(real.parent, _LIBRARIES):
                        self._add(place.parent / part.name, reason)

    def _is_trusted_python(self, folder: Path) -> bool:
        """Whether a real folder is that of an installation of Python that nobody could plant."""
        prefix = folder.parent
        is_home_folder = self._home.is_relative_to(prefix) or self._root.is_relative_to(prefix)
        return (
            folder.name == "bin"
            and not is_home_folder
            and not self._writable.contains(str(folder))
            and not self._is_hidden(prefix)
            and _is_owned(prefix)
            and _is_python(folder)
        )

    def _is_hidden(self, path: Path) -> bool:
        """Whether a path is below a hidden folder of the home that holds no interpreters."""
        if not path.is_relative_to(self._home):
            return False
        inside = f"{path.relative_to(self._home)}/"
        if any(inside.startswith(f"{name}/") for name in (*TOOLCHAINS, ".cache")):
            return False
        return any(part.startswith(".") for part in inside.split("/"))

    def _add(self, place: Path, reason: str) -> None:
        real = Path(os.path.realpath(place))
        if self._may_be_opened(place) and self._may_be_opened(real):
            bind = make_bind(str(place), self._writable, Origin.PERSON, reason)
            if bind is not None:
                self.found[bind.shown_at] = bind

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
    """Yield the parts of the installation whose programs are in a real folder; none if it is none.

    A part that is a link is left out: in the installation it leads to another part, and out of it
    nobody follows it.
    """
    prefix = folder.parent
    if folder.name != "bin":
        return
    if _is_file(prefix / "pyvenv.cfg"):
        yield from _list_parts(prefix, _PARTS)
    elif _is_folder(prefix / "conda-meta") or _is_java(prefix) or _is_go(prefix):
        yield prefix
    elif _is_python(folder) or _has_packages(prefix):
        yield from _list_parts(prefix, _LIBRARIES)


def _list_bases(configuration: Path) -> Iterator[Path]:
    """Yield the folders that may hold the interpreter of a virtual environment.

    That is what `home` names and where the interpreters there lead to, and the folders of the
    programs that newer versions name. No link of the environment counts.
    """
    try:
        file = open_for_reading(configuration, follow_links=True)
    except OSError:
        return
    with file:
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        text = file.read(_MAX_CONFIGURATION).decode("utf-8", "replace") if is_regular else ""
    for found in _BASE_LINE.finditer(text):
        place = Path(found[2])
        if found[1] == "home":
            yield place
            yield from (Path(os.path.realpath(program)).parent for program in place.glob("python*"))
        else:
            yield Path(os.path.realpath(place)).parent


def _list_parts(prefix: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """Yield what exists of an installation and is no link."""
    places = (prefix / name for name in names)
    return (place for place in places if os.path.lexists(place) and not os.path.islink(place))  # noqa: PTH114  as `_is_folder`


def _is_python(folder: Path) -> bool:
    """Whether a real folder holds an interpreter, with its library beside it and not elsewhere."""
    prefix = folder.parent
    interpreters = (os.path.realpath(program) for program in folder.glob("python3*"))
    libraries = prefix.glob("lib/python3.*/os.py")
    return any(
        Path(program).is_relative_to(prefix) and os.access(program, os.X_OK)
        for program in interpreters
    ) and any(os.path.realpath(library) == str(library) for library in libraries)


def _has_packages(prefix: Path) -> bool:
    return _is_folder(prefix / "lib/node_modules") or _is_folder(prefix / "lib/rustlib")


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
