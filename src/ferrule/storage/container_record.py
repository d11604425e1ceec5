"""The engine and image of the sandbox backend `container`, kept in the state folder.

It is written by `ferrule doctor --container`. What cannot be read counts as nothing built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.calls import parse_json

from . import paths

_FILE = "sandbox-container.json"


def read_container_record() -> dict[str, Any]:
    """Return what was written, empty if nothing was."""
    try:
        found = parse_json((paths.state() / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def write_container_record(record: Mapping[str, object]) -> None:
    """Keep what commands run in from now on."""
    paths.write_private(paths.state() / _FILE, json.dumps(record, indent=1, sort_keys=True) + "\n")
