"""Provenance: where a path or a program comes from, and whether commands can change it.

    writable = CommandWritable.from_folders(root, *policy.writable)
    place = trust_path(path, Origin.PERSON, writable, reason="named by VIRTUAL_ENV")
    program = find_program("git", os.environ["PATH"], writable)

A command, or a repository, can write the workspace and every folder that was opened for writing.
Whatever is decided by what lies there is decided by them. So three things take a `TrustedPath` and
nothing else: what of the machine commands are shown, what is started outside the sandbox or with
more rights than commands have, and what loosens a rule. A plain `str` or `Path` does not pass the
type checker there; `trust_path`, `trust_place` and `find_program` are the only makers. For settings
there are types of their own (`storage.settings.values`).

A path is writable by commands if any step on the way to it is: the name itself, each folder above
it, and whatever a link among them leads to. `sealed` folders are the exception: they lie in a
writable folder, and every sandbox backend that is used makes them read-only.

Not protected: what the person, root or another program on the machine replaces between the check
and the use. `TrustedProgram.check` finds that out for programs, not in the same instant.
"""

from __future__ import annotations

import itertools
import os
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, Never, Self

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen

_MAX_LINKS = 40
"""Links that are followed on the way to one path: the kernel's own bound (path_resolution(7))."""


class Origin(StrEnum):
    """Where a path, a program or a setting comes from."""

    PERSON = "person"
    """Named by the person: their settings, command line, variables or answers."""
    MACHINE = "machine"
    """Found where the machine keeps it: system folders, an installation that nobody else owns."""
    REPOSITORY = "repository"
    """Named by files of the workspace, as they came with it."""
    COMMANDS = "commands"
    """Lies where commands can write."""


TrustedOrigin = Literal[Origin.PERSON, Origin.MACHINE]
"""The origins that may decide what is shown, started or loosened."""


class UntrustedPath(FerruleError):
    """A path cannot be trusted: commands can write it, or it cannot be resolved.

    `path` is the path as it was named, `place` where the trouble lies.
    """

    def __init__(self, path: str, place: str, detail: str, *, hint: str = "") -> None:
        message = f"`{path}` cannot be trusted: {detail}"
        super().__init__(message, code="untrusted_path", hint=hint)
        self.path = path
        self.place = place


class ProgramNotFound(FerruleError):
    """No folder that is searched has the program.

    `name` is the program, `skipped` the files of that name that commands can write.
    """

    def __init__(self, name: str, skipped: tuple[str, ...] = ()) -> None:
        if skipped:
            message = (
                f"the program `{name}` was found only at {', '.join(f'`{p}`' for p in skipped)}, "
                "where commands can write"
            )
            hint = f"install `{name}` outside the workspace"
        else:
            message = f"there is no program `{name}` on the PATH"
            hint = f"install `{name}`, or correct the name"
        super().__init__(message, code="program_not_found", hint=hint)
        self.name = name
        self.skipped = skipped


class TrustedPath(str):
    """An absolute real path that commands cannot write, with where it comes from.

    Made by `trust_path`, `trust_place` and `find_program` alone.
    """

    origin: TrustedOrigin
    reason: str

    def __new__(cls, _: Never) -> Self:
        """Refuse, for the type checker and at run time: nothing is trusted by being called so."""
        raise TypeError("a trusted path is made by `trust_path`, `trust_place` or `find_program`")

    @classmethod
    def _make(cls, path: str, origin: TrustedOrigin, reason: str) -> Self:
        made = str.__new__(cls, path)
        made.origin = origin
        made.reason = reason
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (type(self), str(self), dict(self.__dict__)))


class TrustedProgram(TrustedPath):
    """A program that may be started unconfined. `check` says whether it is still the same file.

    It is the path that was found, so that a program that looks at its own name works; `real` is
    the file that this leads to.
    """

    real: str
    identity: tuple[int, int, int, int]

    def check(self) -> None:
        """Check that the program is the file that was found.

        Raises:
            UntrustedPath: It was replaced, changed or removed meanwhile.
        """
        if os.path.realpath(self) != self.real or _identify(self.real) != self.identity:
            raise UntrustedPath(
                str(self), self.real, "it was changed since it was found", hint="start again"
            )


def _restore(cls: type[TrustedPath], path: str, fields: dict[str, object]) -> TrustedPath:
    made = str.__new__(cls, path)
    made.__dict__.update(fields)
    return made


@frozen
class CommandWritable:
    """What commands can write: folders, without those in them that every sandbox seals.

    Attributes:
        folders: Absolute real paths: the workspace and what was opened for writing.
        sealed: Absolute real paths in `folders` that a sandbox makes read-only and holds in place,
            with the folders above them: neither can be renamed or replaced.
        links: Links in `folders` by which Ferrule's own code is reached. A sandbox lets nothing
            else take their names.
    """

    folders: tuple[str, ...]
    sealed: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @classmethod
    def from_folders(cls, *folders: str | Path) -> Self:
        """Return what commands can write if these folders are opened for writing."""
        real = tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))
        return cls(real, find_own_code(real), find_own_links(real))

    @property
    def held(self) -> tuple[str, ...]:
        """What no command may replace: `sealed` and `links`."""
        return (*self.sealed, *self.links)

    @classmethod
    def from_current_folder(cls) -> Self:
        """Return what commands could write if they ran in the current folder.

        For what a person starts without a session: they do so inside repositories. The root of the
        machine is not taken for one.
        """
        here = os.path.realpath(".")
        return cls.from_folders(*([] if here == "/" else [here]))

    def find_step(self, path: str) -> str | None:
        """Return the first step to a path that commands can write; None if there is none.

        Raises:
            UntrustedPath: The path is relative, or its links lead round in circles.
        """
        step = ""
        for step in _walk(path):
            if self._is_replaceable(step):
                return step
        # Of a writable folder itself the name is not theirs, but all that is in it.
        return step if step in self.folders and step not in self.sealed else None

    def find_replaceable(self, path: str) -> str | None:
        """Return the first step to a path that commands can put something else in the place of.

        None if there is none: then the path leads where it leads, whatever commands do. What is in
        it may be theirs to write.

        Raises:
            UntrustedPath: The path is relative, or its links lead round in circles.
        """
        return next(filter(self._is_replaceable, _walk(path)), None)

    def is_inside(self, path: str) -> bool:
        """Return whether a real path lies in a folder that commands can write."""
        return _is_below(os.path.dirname(path), self.folders)  # noqa: PTH120  text, real already

    def _is_replaceable(self, step: str) -> bool:
        """Whether commands can put something else in the place of a step."""
        if not self.is_inside(step):
            return False
        is_held = any(_is_below(place, (step,)) for place in self.held)
        return not is_held and not _is_below(step, self.sealed)

    def contains(self, path: str) -> bool:
        """Return whether commands can write a path or a step on the way to it.

        A path that cannot be resolved counts as one that they can write.
        """
        try:
            return self.find_step(path) is not None
        except UntrustedPath:
            return True


NOTHING_WRITABLE = CommandWritable(())
"""For processes in which no command runs and no workspace is open."""


def trust_path(
    path: str | Path, origin: TrustedOrigin, writable: CommandWritable, *, reason: str
) -> TrustedPath:
    """Return the real path of a place that commands cannot write.

    Args:
        path: An absolute path.
        origin: Who named it.
        writable: What commands can write.
        reason: Why it is needed, for `ferrule doctor --view` and the audit.

    Raises:
        UntrustedPath: Commands can write it, or it cannot be resolved.
    """
    named = os.fspath(path)
    step = writable.find_step(named)
    if step is not None:
        raise UntrustedPath(
            named,
            step,
            f"commands can write `{step}`",
            hint="use a place outside the workspace and the folders that are opened for writing",
        )
    return TrustedPath._make(os.path.realpath(named), origin, reason)  # pyright: ignore[reportPrivateUsage]


def trust_place(
    path: str | Path, origin: TrustedOrigin, writable: CommandWritable, *, reason: str
) -> TrustedPath:
    """Return the real path of a folder that a person opened for writing.

    Commands write what is in it. They cannot change which folder it is.

    Args:
        path: An absolute path.
        origin: Who named it.
        writable: What commands can write, with this folder.
        reason: Why it is opened, for `ferrule doctor --view` and the audit.

    Raises:
        UntrustedPath: Commands can put something else in its place, or it cannot be resolved.
    """
    named = os.fspath(path)
    step = writable.find_replaceable(named)
    if step is not None:
        raise UntrustedPath(
            named,
            step,
            f"commands can replace `{step}`",
            hint="write the real path of the folder into the settings",
        )
    return TrustedPath._make(os.path.realpath(named), origin, reason)  # pyright: ignore[reportPrivateUsage]


def find_program(
    name: str,
    search_path: str,
    writable: CommandWritable,
    *,
    origin: TrustedOrigin = Origin.MACHINE,
    reason: str = "found on PATH",
) -> TrustedProgram:
    """Return the program that a name stands for, outside everything that commands can write.

    Args:
        name: A name, or an absolute path.
        search_path: Folders as in PATH; relative and empty ones are skipped.
        writable: What commands can write.
        origin: Who named it.
        reason: Why it is started, for people.

    Raises:
        ProgramNotFound: There is no such program, or commands can write it.
    """
    skipped: list[str] = []
    for candidate in _list_candidates(name, search_path):
        if not _is_program(candidate):
            continue
        if writable.contains(candidate):
            skipped.append(candidate)
            continue
        return _make_program(candidate, origin, reason)
    raise ProgramNotFound(name, tuple(skipped))


def find_any_program(name: str, search_path: str) -> str | None:
    """Return the file that a name stands for, wherever it lies, or None.

    For what is started with the rights of commands and no more.
    """
    for candidate in _list_candidates(name, search_path):
        if _is_program(candidate):
            return candidate
    return None


def trust_search_path(search_path: str, writable: CommandWritable) -> str:
    """Return those folders of a PATH from which a trusted program may start others.

    A program that is trusted finds its own helpers, and the interpreter that its first line names,
    by the PATH that it is given.
    """
    folders = search_path.split(os.pathsep)
    kept = (one for one in folders if one.startswith("/") and not writable.contains(one))
    return os.pathsep.join(kept)


def find_interpreter() -> TrustedProgram:
    """Return the interpreter that runs this process.

    Its folder is sealed for commands (`find_own_code`), so it is trusted wherever it lies.
    """
    return _make_program(sys.executable, Origin.MACHINE, "the interpreter that runs Ferrule")


def find_own_code(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the code that this process runs and that lies in some folders, outermost first.

    That is the prefix of the interpreter, its packages and programs, and the package `ferrule`
    itself: whoever can write there decides what runs unconfined. Of a prefix that contains a
    folder, or is one, its parts count. A folder in the midst of the packages counts as a whole.

    Args:
        folders: Absolute real paths.
    """
    return _find_own(tuple(folders), tuple(_list_own_code()), _list_packages())[0]


def find_own_links(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the links in some folders that are on the way to the code that this process runs.

    Args:
        folders: Absolute real paths.
    """
    return _find_own(tuple(folders), tuple(_list_own_code()), _list_packages())[1]


@lru_cache(maxsize=64)
def _find_own(
    within: tuple[str, ...], own: tuple[str, ...], packages: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return own code in some folders, and the links to it, as this process first found them.

    What no command may replace does not change, and every file tool asks.
    """
    places = {os.path.realpath(place) for place in own}
    inside = (place for place in places if place not in within and _is_below(place, within))
    real = {os.path.realpath(place) for place in packages}
    sealed = _keep_outermost((*inside, *(folder for folder in within if _is_below(folder, real))))
    links: dict[str, None] = {}
    for step in itertools.chain.from_iterable(map(_walk, own)):
        if _is_below(step, within) and not _is_below(step, sealed) and _read_link(step):
            links[step] = None
    return sealed, tuple(links)


def _list_own_code() -> Iterator[str]:
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix)
    yield f"{sys.prefix}/pyvenv.cfg"
    if sys.executable:  # none where Python is embedded
        yield os.path.dirname(sys.executable)  # noqa: PTH120  text: the link itself is what counts
    yield from _list_packages()


@cache
def _list_packages() -> tuple[str, ...]:
    """Return the folders of packages and programs, the package `ferrule`, and those beside it.

    In a tree of our sources, `packages` has our other distributions. These folders stay the same
    while the process runs, and asking for them takes milliseconds.
    """
    found = [*map(sysconfig.get_path, ("purelib", "platlib", "scripts", "stdlib"))]
    package = Path(__file__).parent.parent
    found.append(str(package))
    if package.parent.name in ("site-packages", "dist-packages"):
        found.append(str(package.parent))
    beside = package.parents[1] / "packages" / "ferrule-local" / "src"
    if beside.is_dir():
        found.append(str(beside))
    return tuple(found)


def _keep_outermost(places: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for place in sorted(set(places)):
        if not _is_below(place, kept):
            kept.append(place)
    return tuple(kept)


def find_first_link(path: str, folders: Iterable[str] = ("/",)) -> str | None:
    """Return the first link on the way to an absolute path, by its real place; None without one.

    Only links in `folders`, absolute real paths, count.
    """
    steps = (step for step in _walk(path) if _is_below(os.path.dirname(step), folders))  # noqa: PTH120  text, real already
    return next(filter(_read_link, steps), None)


def explain_own_code(path: str, writable: CommandWritable) -> str:
    """Return why a path cannot be changed, and the next step; "" if it is not Ferrule's own code.

    Args:
        path: An absolute path, as it was named.
        writable: What commands can write.
    """
    held = next((place for place in writable.held if _is_below(path, (place,))), None)
    if held is None:
        return ""
    return (
        f"Ferrule itself runs from `{held}`, so nothing in it can be changed by commands or tools; "
        "install Ferrule apart from the project (`uv tool install ferrule` or "
        "`pipx install ferrule`), or give the project an environment of another name"
    )


def _make_program(path: str, origin: TrustedOrigin, reason: str) -> TrustedProgram:
    made = TrustedProgram._make(path, origin, reason)  # pyright: ignore[reportPrivateUsage]
    made.real = os.path.realpath(path)
    made.identity = _identify(made.real)
    return made


def _identify(path: str) -> tuple[int, int, int, int]:
    """Return what changes when a file is replaced or written; zeros if there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return (0, 0, 0, 0)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113  text, as PATH has it


def _list_candidates(name: str, search_path: str) -> Iterator[str]:
    if "/" in name:
        if name.startswith("/"):
            yield name
        return
    for folder in search_path.split(os.pathsep):
        if folder.startswith("/"):
            yield f"{folder.rstrip('/')}/{name}"


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _walk(path: str) -> Iterator[str]:
    """Yield every step of resolving a path as the kernel does: real folder and name in it.

    A component that does not exist ends the walk after it was yielded.
    """
    if not path.startswith("/"):
        raise UntrustedPath(path, path, "it is a relative path")
    waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    at = "/"
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            at = os.path.dirname(at)  # noqa: PTH120  text: `at` is real already
            continue
        step = f"{at.rstrip('/')}/{part}"
        yield step
        target = _read_link(step)
        if target is None:
            at = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise UntrustedPath(path, step, "its links lead round in circles")
        if target.startswith("/"):
            at = "/"
        waiting.extend(part for part in reversed(target.split("/")) if part not in ("", "."))


def _read_link(path: str) -> str | None:
    try:
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return None
        return os.readlink(path)  # noqa: PTH115  text, as the file system has it
    except OSError:
        return None
