"""Finders that believe what lies in a workspace: the code that the rows of the tables are about.

With them, and without the walls behind, a row opens what it was planted to open. So a row that is
never reached is held by what Ferrule does, not by chance.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.permissions import repositories
from ferrule.permissions.provenance import CommandWritable, Origin
from ferrule.permissions.repositories import FoundRepository, Repository
from ferrule.sandbox.backends import namespaces
from ferrule.sandbox.view import machine_folders
from ferrule.sandbox.view.environments import IN_WORKSPACE, VARIABLES
from ferrule.sandbox.view.toolchains import ReadOnlyBind, make_bind

_PARTS = ("bin", "lib", "lib64", "include", "libexec", "share", "etc", "src", "envs")


def believe_environments(patch: pytest.MonkeyPatch) -> None:
    """Show whatever an environment in use leads to, by its folders, links and configuration."""
    patch.setattr(machine_folders, "find_environments", _find_environments)


def believe_repositories(patch: pytest.MonkeyPatch) -> None:
    """Open the first repository that anything in `.git` of the workspace leads to or names."""
    for module in (repositories, namespaces):
        patch.setattr(module, "find_repository", _find_repository)


def trust_everything(patch: pytest.MonkeyPatch) -> None:
    """Take nothing for writable by commands: every path passes as one that the person named."""
    for name in ("find_step", "find_replaceable"):
        patch.setattr(CommandWritable, name, _find_nothing)


def _find_nothing(_: CommandWritable, path: str) -> None:
    """Say of no path that commands can write it."""


def _find_environments(
    variables: Mapping[str, str], home: str, root: str, writable: CommandWritable
) -> tuple[ReadOnlyBind, ...]:
    prefixes = [Path(entry).parent for entry in variables.get("PATH", "").split(os.pathsep)]
    prefixes += [Path(variables[name]) for name in VARIABLES if variables.get(name)]
    prefixes += [Path(root, name) for name in (*IN_WORKSPACE, "node_modules")]
    found: dict[str, ReadOnlyBind] = {}
    for place in _list_places(prefixes, Path(home)):
        bind = make_bind(str(place), writable, Origin.PERSON, "believed")
        if bind is not None:
            found[str(bind.path)] = ReadOnlyBind(bind.path, str(bind.path))
    return tuple(found.values())


def _list_places(prefixes: list[Path], home: Path) -> Iterator[Path]:
    for prefix in dict.fromkeys(prefixes):
        if not prefix.is_relative_to(home):
            continue
        links = (prefix, *(prefix / part for part in (*_PARTS, ".bin")))
        yield from (place for place in links if place.is_symlink() or _is_through_link(place))
        yield from (place for place in prefix.glob("bin/*") if place.is_symlink())
        yield from (base for base in _list_bases(prefix / "pyvenv.cfg") if base.exists())


def _is_through_link(place: Path) -> bool:
    return place.exists() and os.path.realpath(place) != str(place)


def _list_bases(configuration: Path) -> Iterator[Path]:
    with suppress(OSError):
        if configuration.is_symlink():
            yield configuration
        if configuration.is_file():
            for named in re.findall(r"=\s*(/[^\n\0]{1,1000})", configuration.read_text()):
                yield Path(named)
                yield from (Path(os.path.realpath(one)) for one in Path(named).glob("python*"))
                yield from (one for one in Path(named).parent.glob("*") if one.is_symlink())


def _find_repository(root: str | os.PathLike[str], home: str | None = None) -> FoundRepository:
    top = Path(root)
    for place in _list_named(top):
        real = Path(os.path.realpath(top / place))
        for folder in (real, *real.parents):
            is_repository = (folder / "HEAD").is_file() and (folder / "objects").is_dir()
            if is_repository and not folder.is_relative_to(top):
                text = str(folder)
                return FoundRepository(Repository(str(top), text, text))
    return FoundRepository()


def _list_named(top: Path) -> Iterator[Path]:
    git = top / ".git"
    if git.is_symlink():
        yield git
    files = [git, *git.rglob("*"), *top.glob("f/worktrees/*/*")]
    for place in files:
        if place.is_symlink():
            yield place
        elif place.is_file() and place.stat().st_size < 4096:
            named = re.findall(
                r"(?:gitdir: |= |^)([/.][^\s]+)", place.read_text(errors="replace"), re.M
            )
            for text in named:
                yield Path(text)
                yield Path(text, ".git")
