"""Public names of a package that are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Importing the package loads none of the modules; the first use of a name loads its module.

    Args:
        package: The `__name__` of the package.
        modules: Names by the module that defines them; one that begins with a dot is relative to
            the package. `A as B` offers `A` under the name `B`.
    """
    places: dict[str, tuple[str, str]] = {}
    for module, entries in modules.items():
        for entry in entries:
            name, _, alias = entry.partition(" as ")
            places[alias or name] = (module, name)

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, defined = places[name]
        try:
            value = getattr(import_module(module, package), defined)
        except ImportError as error:
            from .extras import describe_missing

            missing = describe_missing(error)
            if missing is None:
                raise
            raise missing from error
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*places, *vars(sys.modules[package])})

    return load, list_names
