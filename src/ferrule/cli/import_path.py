"""Where the command line imports modules from: from nowhere that commands can write.

    protect_imports(sys.argv[1:])       # first of all, before anything is imported
    allow_named_modules()               # where a person names a module of the current folder

A command of an earlier session, or a repository, may have put a module into the current folder or
another workspace. `PYTHONPATH`, an editable install (of Ferrule itself, too) or a `.pth` file can
lead there. Such places are taken out of `sys.path`, and what other finders find there is passed
over. Ferrule's own modules are found by the path of their package, not by `sys.path`.

Only modules that are part of the interpreter (built in or frozen) are imported here. Not protected:
what the interpreter and its start-up script import before they call Ferrule (`encodings`,
`sitecustomize`, `re`, …). If one of these came from such a place, nothing is started.
"""

import os
import sys
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Guard:
    """What commands can write, and what was taken out of `sys.path` for that."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self.folders = folders
        self.removed: list[str] = []
        self._own = _list_own_folders()
        self._known: dict[str, bool] = {}

    def is_planted_spec(self, spec: "ModuleSpec") -> bool:
        """Whether a module would come from where commands can write."""
        places = list(spec.submodule_search_locations or ())
        if spec.has_location and spec.origin:
            places.append(spec.origin)
        return any(map(self.is_planted, places))

    def is_planted(self, place: str) -> bool:
        """Whether a path lies where commands can write; relative ones count as such."""
        if not os.path.isabs(place):
            return True
        if not place.endswith(".py") or os.path.islink(place):
            return self._is_writable(place)
        # The many modules of a folder are asked about once.
        folder = os.path.dirname(place)
        if folder not in self._known:
            self._known[folder] = self._is_writable(folder)
        return self._known[folder]

    def _is_writable(self, place: str) -> bool:
        real = os.path.realpath(place)
        return _is_below(real, self.folders) and not _is_below(real, self._own)


class _GuardedFinder:
    """A finder of modules that does not find what is planted."""

    def __init__(self, finder: "Any", guard: _Guard) -> None:
        self.finder = finder
        self._guard = guard

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return what the finder finds; parts of a package come with it, wherever they are."""
        spec = self.finder.find_spec(name, path, target)
        if path is None and spec is not None and self._guard.is_planted_spec(spec):
            return None
        return spec

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.finder, name)


_guard: "_Guard | None" = None


def protect_imports(arguments: Sequence[str]) -> str:
    """Import nothing any more from the current folder, and from folders that arguments name.

    With a folder counts the repository around it: a session at its top may have written there.

    Args:
        arguments: The command line. Its options are not known yet, so each word that names a
            folder counts as a workspace.

    Returns:
        Why nothing may be started: a module that is already loaded came from there. Empty if all
        is well.
    """
    global _guard  # noqa: PLW0603  one for the process, as `sys.path` is
    allow_named_modules()
    named = (word.partition("=")[2] or word.removeprefix("-C") for word in arguments)
    folders = (".", *arguments, *named)
    real = {os.path.realpath(folder) for folder in folders if folder and os.path.isdir(folder)}
    real |= set(map(_find_top, real))
    _guard = _Guard(tuple(sorted(real - {"/"})))
    _guard.removed = [entry for entry in sys.path if _guard.is_planted(entry)]
    sys.path[:] = [entry for entry in sys.path if entry not in _guard.removed]
    finders: list[Any] = list(sys.meta_path)
    for at, finder in enumerate(finders):
        # Those of the module `_frozen_importlib` find only parts of the interpreter.
        if hasattr(finder, "find_spec") and finder.__module__ != "_frozen_importlib":
            sys.meta_path[at] = _GuardedFinder(finder, _guard)
    # Without such an entry nothing came from one.
    for name, module in list(sys.modules.items()) if _guard.removed else ():
        file = getattr(module, "__file__", None)
        is_own = name.partition(".")[0] in ("ferrule", "__main__")
        if file and not is_own and _guard.is_planted(file):
            return f"the module `{name}` was loaded from `{file}`, {_NEXT_STEP}"
    return ""


def find_left_out(name: str) -> str:
    """Return why a module that Ferrule needs was not found, if it lies where commands can write.

    Args:
        name: The module.
    """
    removed = _guard.removed if _guard is not None else []
    for folder in removed:
        for place in (f"{folder}/{name}", f"{folder}/{name}.py"):
            if os.path.exists(place):
                return f"the module `{name}` lies in `{folder}`, {_NEXT_STEP}"
    return ""


_NEXT_STEP = (
    "where commands can write; unset PYTHONPATH, and install Ferrule apart from the project "
    "(`uv tool install ferrule` or `pipx install ferrule`)"
)


def allow_named_modules() -> None:
    """Let modules be imported from everywhere again, those of the workspace last.

    For a person who names a module of the current folder: they run it.
    """
    finders: list[Any] = list(sys.meta_path)
    for at, finder in enumerate(finders):
        if isinstance(finder, _GuardedFinder):
            sys.meta_path[at] = finder.finder
    if _guard is not None:
        sys.path.extend(entry for entry in _guard.removed if entry not in sys.path)


def _find_top(folder: str) -> str:
    """Return the highest folder above that looks like a repository, else the folder itself."""
    top: str = folder
    above: str = folder
    while above != "/":
        above = os.path.dirname(above)
        if os.path.exists(f"{above}/.git"):
            top = above
    return top


def _list_own_folders() -> tuple[str, ...]:
    """Return where the interpreter's own modules and the packages beside Ferrule are.

    No command can write there: a sandbox seals it (`permissions.provenance.find_own_code`).
    """
    own = [f"{prefix}/{name}" for prefix in (sys.prefix, sys.base_prefix) for name in _LIBRARIES]
    own.append(os.path.dirname(os.__file__))
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    around = os.path.dirname(package)
    if os.path.basename(around) in ("site-packages", "dist-packages"):
        own.append(around)
    # Our other distributions, in a tree of our sources.
    beside = f"{os.path.dirname(around)}/packages/ferrule-local/src"
    if os.path.isdir(beside):
        own.append(beside)
    return tuple(map(os.path.realpath, own))


_LIBRARIES = ("lib", "lib64", f"lib/python{sys.version_info[0]}{sys.version_info[1]}.zip")


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
