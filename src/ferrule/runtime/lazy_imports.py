"""Imports at the top of a command's module that are carried out when they are first used.

    with lazy_imports():
        from ferrule.connectors.mcp import oauth
        from ferrule.runtime import assemble

A command's options are read for `--help` and for completion too, so its module must not load an
agent. Names are modules: `assemble.open_journal()` loads `assemble`. Python 3.15 has the same as a
statement (PEP 810).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

WAIT_SECONDS = 30.0
"""Seconds that a thread waits for another one that loads a module.

The two may wait for each other: one runs a package and needs its module, the other imports that
module and needs the package. Then the module runs first, as where Python's own locks would meet.
"""

_block = threading.local()
"""`is_open`: whether this thread is between the first and the last line of a `with` block."""


@contextmanager
def lazy_imports() -> Generator[None]:
    """Load the modules that are imported in the block when something of them is first used.

    A module that is loaded already is taken as it is. A name that is not a module is an
    ImportError in the block; what a module raises while it is loaded is raised where it is used.
    """
    if _LazyFinder not in sys.meta_path:
        sys.meta_path.insert(0, _LazyFinder)
    _block.is_open = True
    try:
        yield
    finally:
        _block.is_open = False


class _LazyFinder:
    """Finds the modules of a block, and has packages run before their modules, as everywhere."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not getattr(_block, "is_open", False):
            _load_package_of(name)
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _LazyLoader(spec.loader))
        return spec


class _LazyLoader:
    """Makes a module that runs its code later, once, in whichever thread needs it first."""

    def __init__(self, real: Loader) -> None:
        self.real = real
        self.lock = threading.RLock()
        self.is_loading = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LazyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it for later."""

    def load(self, module: ModuleType, spec: ModuleSpec) -> None:
        """Run the module's code, unless it has run or is running in this thread."""
        _load_package_of(spec.name)
        if not self.lock.acquire(timeout=WAIT_SECONDS):
            return
        try:
            if cast(object, spec.loader) is not self or self.is_loading:
                return
            self.is_loading = True
            try:
                self.real.exec_module(module)
            finally:
                self.is_loading = False
            spec.loader = module.__loader__ = self.real
            module.__class__ = ModuleType
        finally:
            self.lock.release()


class _LazyModule(ModuleType):
    """A module whose code has not run. What the import system wrote into it can be read."""

    def __getattr__(self, name: str) -> Any:
        if not getattr(_block, "is_open", False):
            _load(self)
        return ModuleType.__getattribute__(self, name)


def _load_package_of(name: str) -> None:
    """Run a package before a module of it, which it may import by name."""
    package = sys.modules.get(name.rpartition(".")[0])
    if isinstance(package, _LazyModule):
        _load(package)


def _load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None
    loader: object = spec.loader
    if isinstance(loader, _LazyLoader):
        loader.load(module, spec)
