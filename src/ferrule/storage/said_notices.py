"""Notices that a person is told once: the state folder has the hashes of those that were said."""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256

from ferrule.core.calls import parse_json
from ferrule.core.errors import FerruleError

from . import paths

_FILE = "said-notices.json"
_MOST = 500


def say_first_time(text: str) -> bool:
    """Return whether a notice was never said before, and remember that it is said now.

    Where that cannot be remembered it is said again.
    """
    file = paths.state() / _FILE
    mark = sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    try:
        said: list[str] = [str(one) for one in parse_json(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        said = []
    if mark in said:
        return False
    with suppress(OSError, FerruleError):
        paths.make_private_folder(file.parent)
        paths.write_private(file, json.dumps([*said, mark][-_MOST:]) + "\n")
    return True
