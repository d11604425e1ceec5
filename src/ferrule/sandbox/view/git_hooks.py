"""Hooks of a repository: whether it has any, and which of them ran in a command.

Commands see the hooks and cannot change them; git starts them inside the sandbox like all that a
command starts. Which ran is read from git's own trace (GIT_TRACE2_EVENT, api-trace2), a file of the
session. A command can write into it too: it is for people and models to read, and decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ferrule.core.calls import parse_json
from ferrule.permissions.repositories import (
    Repository,
    find_hooks_folder,
    read_text,
)

MAX_HOOKS = 20
"""Runs of hooks that are reported for one command."""


def list_hooks(repository: Repository) -> frozenset[str]:
    """Return the names of the hooks of a repository that git would run."""
    try:
        with os.scandir(find_hooks_folder(repository)) as entries:
            return frozenset(
                entry.name
                for entry in entries
                if not entry.name.endswith(".sample")
                and entry.is_file()
                and os.access(entry.path, os.X_OK)
            )
    except OSError:
        return frozenset()


def read_hooks(trace: Path) -> tuple[str, ...]:
    """Return the hooks that ran, with the exit status of those that failed."""
    started: dict[tuple[object, object], str] = {}
    found: dict[tuple[object, object], str] = {}
    for event in _read_events(trace):
        key = (event.get("sid"), event.get("child_id"))
        if event.get("event") == "child_start" and event.get("child_class") == "hook":
            name = event.get("hook_name")
            if isinstance(name, str) and name.isprintable() and len(found) < MAX_HOOKS:
                started[key] = found[key] = name
        elif event.get("event") == "child_exit" and key in started and event.get("code"):
            found[key] = f"{started[key]} (exit status {event['code']})"
    return tuple(dict.fromkeys(found.values()))


def _read_events(trace: Path) -> Iterator[dict[str, object]]:
    for line in read_text(str(trace)).splitlines():
        if '"child_' not in line:
            continue
        try:
            event: object = parse_json(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield cast("dict[str, object]", event)
