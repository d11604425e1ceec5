"""What attacks on the sandbox have shown on this machine, kept in the state folder.

It is written by `ferrule doctor --attack` and holds as long as the system's kernel and Ferrule's
version are what they were then. What cannot be read counts as nothing shown.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, cast

from ferrule._version import __version__
from ferrule.core.calls import parse_json

from . import paths

_FILE = "sandbox-attacks.json"


def describe_machine() -> str:
    """Return what the results depend on: system, kernel, processor and Ferrule's version."""
    system = os.uname()
    return f"{sys.platform} {system.release} {system.machine}, ferrule {__version__}"


def read_attack_results() -> dict[str, Any]:
    """Return `{backend: {"held": [...], "broken": {protection: attack}}}` of this machine."""
    try:
        found = parse_json((paths.state() / _FILE).read_text(encoding="utf-8"))
        if found["machine"] != describe_machine():
            return {}
        return cast("dict[str, Any]", found["backends"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_attack_results(backends: Mapping[str, Any]) -> None:
    """Keep the results of this machine; those of other backends stay."""
    known = {**read_attack_results(), **backends}
    text = json.dumps({"machine": describe_machine(), "backends": known}, indent=1, sort_keys=True)
    paths.write_private(paths.state() / _FILE, text + "\n")
