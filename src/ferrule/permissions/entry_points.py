"""What installed distributions offer by entry points, but for those that commands can write.

Plugins are found by an index instead (`storage.plugins.installed`): reading the metadata of all
distributions loads `email` and takes longer than most starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

from ferrule.core.value_class import frozen

from .installed_code import find_writable_place
from .provenance import CommandWritable


@frozen
class RefusedDistribution:
    """A distribution whose entry points are not used: commands can write `path`, a file of it."""

    name: str
    path: str


def find_entry_points(
    group: str, writable: CommandWritable
) -> tuple[tuple[EntryPoint, ...], tuple[RefusedDistribution, ...]]:
    """Return the entry points of a group, and the distributions whose ones are not used.

    Args:
        group: The group, such as `ferrule.plugins`.
        writable: What commands can write.
    """
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
