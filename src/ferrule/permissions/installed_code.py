"""Installed Python code: which of it may be loaded into this process.

An environment can lie in the workspace, where commands write. What lies there is loaded by nobody,
our own sealed environment apart (`provenance.find_own_code`): neither a module by its name nor what
a distribution offers by an entry point.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.core.value_class import frozen

from .provenance import CommandWritable

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint


@frozen
class RefusedDistribution:
    """A distribution whose entry points are not used: commands can write `path`, a file of it."""

    name: str
    path: str


def find_writable_location(spec: ModuleSpec | None, writable: CommandWritable) -> str | None:
    """Return where a module would be loaded from, if commands can write there."""
    if spec is None:
        return None
    named = [spec.origin] if spec.has_location and spec.origin else []
    places = (*named, *(spec.submodule_search_locations or ()))
    return find_writable_place(places, writable)


def find_entry_points(
    group: str, writable: CommandWritable
) -> tuple[tuple[EntryPoint, ...], tuple[RefusedDistribution, ...]]:
    """Return the entry points of a group, and the distributions whose ones are not used.

    Args:
        group: The group, such as `ferrule.plugins`.
        writable: What commands can write.
    """
    # It loads `email`, and most starts read an index instead (`storage.plugins.installed`).
    from importlib.metadata import distributions

    found: list[EntryPoint] = []
    refused: list[RefusedDistribution] = []
    for distribution in distributions():
        offered = [point for point in distribution.entry_points if point.group == group]
        if not offered:
            continue
        path = find_writable_place(_list_files(distribution), writable)
        if path is None:
            found += offered
        else:
            refused.append(RefusedDistribution(distribution.name, path))
    return tuple(found), tuple(refused)


def _list_files(distribution: Distribution) -> Iterator[str]:
    """Yield the files of a distribution, and where an editable one leads."""
    yield str(distribution.locate_file(""))
    for file in distribution.files or ():
        place = Path(str(distribution.locate_file(file)))
        yield str(place)
        if place.suffix == ".pth":
            yield from _read_path_file(place)


def _read_path_file(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    yield from (line for line in lines if line.startswith("/"))


def find_writable_place(places: Iterable[str], writable: CommandWritable) -> str | None:
    """Return the first of some files and folders of a distribution that commands can write.

    Args:
        places: Their paths; a relative one is meant from the current folder.
        writable: What commands can write.
    """
    absolute = map(os.path.abspath, places)
    return next((place for place in absolute if writable.contains(place)), None)
