"""What a function takes and gives can be asked of it at run time, everywhere in the package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from types import ModuleType

import ferrule

NOT_RESOLVED = (
    # Loaded by a fresh interpreter for each command, where every import counts.
    "ferrule.sandbox.inside",
    # Commands load what they need when they run, so that help is quick.
    "ferrule.cli",
    "ferrule.servers.a2a.command",
    # A model of pydantic with private attributes has a method of pydantic's that is not resolved.
    "ferrule.adapters.langchain",
    # Annotated with generic classes of libraries that are extras.
    "ferrule.servers.mcp.handlers",
    "ferrule.storage.journal.postgres_schema",
)


def list_modules() -> list[str]:
    names = [item.name for item in pkgutil.walk_packages(ferrule.__path__, "ferrule.")]
    return ["ferrule", *(name for name in names if not name.startswith(NOT_RESOLVED))]


def list_callables(module: ModuleType) -> Iterator[typing.Any]:
    """Yield the public functions, classes and methods that a module defines."""
    for name, value in list(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(value):
            yield value
        elif inspect.isclass(value):
            yield value
            yield from list_methods(value)


def list_methods(owner: type) -> Iterator[typing.Any]:
    for name, value in vars(owner).items():
        method = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        if not inspect.isfunction(method) or (name.startswith("_") and name != "__init__"):
            continue
        if method.__code__.co_filename != "<string>":  # else made by `dataclass`, see the class
            yield method


def test_the_hints_and_the_signature_of_whatever_is_public_can_be_had() -> None:
    failures: list[str] = []
    count = 0
    for name in list_modules():
        module = importlib.import_module(name)
        for one in list_callables(module):
            count += 1
            try:
                typing.get_type_hints(one)
                if not inspect.isclass(one):
                    inspect.signature(one)
            except Exception as error:
                failures.append(f"{name}.{one.__qualname__}: {error}")
    assert count > 4_000
    assert not failures, "\n".join(failures)
