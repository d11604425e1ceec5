"""The control group that this process may make for a session, to limit its commands together.

    groups = find(bounds, name)

Version 2 lets processes live in leaves only, so the group is made beside ours, in the nearest
folder above that we may write and that passes memory and pids on (systemd delegates one to each
user). In version 1 it is made below ours, one for each of the two. Format: cgroups(7),
cgroup-v2.rst and memory.rst of the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.sandbox.policy import ResourceLimits

Group = tuple[str, dict[str, str], str]
"""A group to make; see `inside.kernel.cgroup_limits`."""


@frozen
class ControlGroups:
    """`groups` are the groups to make, `limited` what they limit: `memory`, `processes`."""

    groups: tuple[Group, ...] = ()
    limited: frozenset[str] = frozenset()


def find_groups(
    bounds: ResourceLimits,
    name: str,
    *,
    own_groups: str | None = None,
    root: Path = Path("/sys/fs/cgroup"),
) -> ControlGroups:
    """Find where groups can be made. Nothing is made yet, and nothing is raised.

    Args:
        bounds: What is to be limited.
        name: What the group's folder is to be called.
        own_groups: The text of /proc/self/cgroup; None reads it.
        root: Where control groups are mounted.
    """
    if own_groups is None:
        try:
            own_groups = Path("/proc/self/cgroup").read_text()
        except OSError:
            return ControlGroups()
    if bounds.memory is None and bounds.processes is None:
        return ControlGroups()
    lines = [line.split(":", 2) for line in own_groups.splitlines() if line.count(":") >= 2]
    return _open_unified(bounds, name, lines, root) or _separate(bounds, name, lines, root)


def _open_unified(
    bounds: ResourceLimits, name: str, lines: list[list[str]], root: Path
) -> ControlGroups | None:
    path = next((path for number, _, path in lines if number == "0"), None)
    if path is None:
        return None
    for folder in _parent_folders(root, path):
        if not (folder / "cgroup.subtree_control").is_file() or not _is_writable(folder):
            continue
        controllers = set((folder / "cgroup.subtree_control").read_text().split())
        values = _unified_values(bounds, controllers)
        if values and _is_writable(folder / "cgroup.procs"):
            limited = {"memory" if file.startswith("memory") else "processes" for file in values}
            return ControlGroups(
                ((f"{folder}/{name}", values, str(root / path.lstrip("/"))),), frozenset(limited)
            )
    return None


def _parent_folders(root: Path, path: str) -> Iterator[Path]:
    """Yield the folders above ours, up to where version 2 is mounted."""
    folder = root / path.lstrip("/")
    while folder != root and root in folder.parents:
        folder = folder.parent
        yield folder


def _unified_values(bounds: ResourceLimits, controllers: set[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    if bounds.memory is not None and "memory" in controllers:
        values["memory.max"] = str(bounds.memory)
    if bounds.processes is not None and "pids" in controllers:
        values["pids.max"] = str(bounds.processes)
    return values


def _separate(
    bounds: ResourceLimits, name: str, lines: list[list[str]], root: Path
) -> ControlGroups:
    made: list[Group] = []
    limited: set[str] = set()
    for controller, limit, file, value in (
        ("memory", "memory", "memory.limit_in_bytes", bounds.memory),
        ("pids", "processes", "pids.max", bounds.processes),
    ):
        path = next((path for _, names, path in lines if controller in names.split(",")), None)
        folder = root / controller / (path or "").lstrip("/")
        if (
            value is not None
            and path is not None
            and (folder / "cgroup.procs").is_file()
            and _is_writable(folder)
        ):
            made.append((f"{folder}/{name}", {file: str(value)}, str(folder)))
            limited.add(limit)
    return ControlGroups(tuple(made), frozenset(limited))


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK)
