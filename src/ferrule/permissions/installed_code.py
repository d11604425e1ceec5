"""Installed Python code: which of it may be loaded into this process.

An environment can lie in the workspace, where commands write. What lies there is loaded by nobody,
our own sealed environment apart (`provenance.find_own_code`): neither a module by its name nor what
a distribution offers by an entry point (`entry_points`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.machinery import ModuleSpec

from .provenance import CommandWritable


def find_writable_location(spec: ModuleSpec | None, writable: CommandWritable) -> str | None:
    """Return where a module would be loaded from, if commands can write there."""
    if spec is None:
        return None
    named = [spec.origin] if spec.has_location and spec.origin else []
    places = (*named, *(spec.submodule_search_locations or ()))
    return find_writable_place(places, writable)


def find_writable_place(places: Iterable[str], writable: CommandWritable) -> str | None:
    """Return the first of some files and folders of a distribution that commands can write.

    Args:
        places: Their paths; a relative one is meant from the current folder.
        writable: What commands can write.
    """
    absolute = map(os.path.abspath, places)
    return next((place for place in absolute if writable.contains(place)), None)
