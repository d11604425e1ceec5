"""Load tools written in Python: files of a trusted folder, a person's own files, installed modules.

The setting `tools.python` names them. A file provides every tool at its top level (`@tool`,
`define_tool`, or in a list `TOOLS`). Its plain functions are handlers for tool files without a
script (`handlers`).

* A file of a workspace is run from the bytes that `storage.trust` read and that a person trusted;
  the disk is not read again.
* Such a file can import what is installed, and files beside it that `tools.python` names, too.
  Anything else in the workspace is refused, even if `sys.path` or an editable install would find
  it: trust does not cover it, and a tool could have changed it.
* A file is run once in a process, and again only if its bytes, or those of a named file beside it,
  have changed.

Not protected: what runs here is part of this process and has all rights of the person. No sandbox
confines it; the gate judges its calls by what each tool declares.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import field, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType
from typing import Any, cast

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen
from ferrule.permissions.installed_code import find_writable_location
from ferrule.permissions.provenance import CommandWritable
from ferrule.storage.trust import ConfigurationSnapshot
from ferrule.tools.definition import Tool

SETTING = "tools.python"
_MOST_BYTES = 1 << 20
"""Bytes of a person's file."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LONGEST_ERROR = 500
"""Characters of an error that somebody else's code raised."""


@frozen
class PythonSource:
    """A file to run. `name` is how people know it, `path` is absolute."""

    name: str
    path: Path
    data: bytes


@frozen
class ModuleContents:
    """What one file or module provides.

    `is_imported` is true if another file imports it, so that it may be without tools.
    """

    name: str
    tools: tuple[Tool, ...]
    functions: Mapping[str, Callable[..., Any]]
    is_imported: bool = False

    def locate(self, function: Callable[..., Any]) -> str:
        """Return `file:line` of a function in it, as far as that is known."""
        code = getattr(inspect.unwrap(function), "__code__", None)
        return f"{self.name}:{code.co_firstlineno}" if code is not None else self.name


@frozen
class PythonTools:
    """What Python files and modules provide, and what is wrong with them."""

    modules: tuple[ModuleContents, ...] = ()
    errors: list[ConfigError] = field(default_factory=list[ConfigError])

    def find_handler(self, tool: str) -> Callable[..., Any] | None:
        """Return the function for a tool file without a script, by `handler_name`, or None.

        Raises ConfigError if two files have one.
        """
        name = handler_name(tool)
        modules = [module for module in self.modules if name in module.functions]
        if not modules:
            return None
        functions = [module.functions[name] for module in modules]
        if len(set(map(id, functions))) > 1:
            places = " and ".join(module.locate(module.functions[name]) for module in modules)
            raise ConfigError(
                f"{places}: both are a handler for the tool file `{tool}`", hint="rename one"
            )
        return functions[0]

    def find_unused(self, handlers: Iterable[Callable[..., Any]]) -> Iterator[ConfigError]:
        """Yield an error for each file that provides neither a tool nor one of these handlers."""
        used = set(map(id, handlers))
        for module in self.modules:
            has_handler = not used.isdisjoint(map(id, module.functions.values()))
            if module.tools or module.is_imported or has_handler:
                continue
            yield ConfigError(
                f"{module.name}: there is no tool in it",
                hint=(
                    "put `@tool` (`from ferrule import tool`) above a function, or take the "
                    f"file out of `{SETTING}`"
                ),
            )


def handler_name(tool: str) -> str:
    """Return the function name of a tool's handler: the tool's, with `_` for `-` and `.`."""
    return tool.replace("-", "_").replace(".", "_")


@frozen
class PythonSources:
    """The value of the setting `tools.python`.

    Attributes:
        names: Module names and files. Relative files are those of the workspace, absolute ones the
            person's, in the settings folder or elsewhere outside the workspace.
        where: Where the setting was written, for error messages.
    """

    names: Sequence[str] = ()
    where: str = SETTING


def load_python_tools(
    sources: PythonSources,
    snapshot: ConfigurationSnapshot,
    settings_folder: Path | None = None,
    writable: CommandWritable | None = None,
) -> PythonTools:
    """Run the files and modules of `tools.python`. Problems are collected in `errors`.

    Args:
        sources: The files and modules.
        snapshot: The workspace as `Trust.read` read it.
        settings_folder: The person's settings folder.
        writable: What commands can write; by default the workspace.
    """
    loaded = PythonTools()
    if not sources.names:
        return loaded
    files, modules = _read_sources(
        sources.names, snapshot, settings_folder, sources.where, loaded.errors
    )
    if writable is None:
        folders = [snapshot.workspace] if snapshot.workspace else []
        writable = CommandWritable.from_folders(*folders)
    loader = _Loader(files, writable)
    imported: set[str] = set()
    for file in files:
        imported.update(_imports(file))
    contents: list[ModuleContents] = []
    taken: set[int] = set()
    for file in files:
        try:
            module = loader.load(file)
        except (Exception, SystemExit) as error:  # noqa: BLE001  code of other people: whatever it raises is reported, with its place
            loaded.errors.append(_run_error(file, error))
            continue
        loaded.errors.extend(_repeated_tools(file))
        is_imported = file.path.stem in imported
        contents.append(_read_module(file.name, module, taken, spare=is_imported))
    for name in modules:
        try:
            module = _import_module(name, loader)
        except (Exception, SystemExit) as error:  # noqa: BLE001  code of other people: whatever it raises is reported
            loaded.errors.append(_import_error(name, error, sources.where))
            continue
        contents.append(_read_module(name, module, taken))
    return PythonTools(tuple(contents), loaded.errors)


def _add_place(error: ConfigError, where: str) -> ConfigError:
    """Put the place of the setting before an error."""
    return ConfigError(f"{where}: {error.detail}", hint=error.hint)


# ---- which files


def _read_sources(
    names: Iterable[str],
    snapshot: ConfigurationSnapshot,
    settings_folder: Path | None,
    where: str,
    errors: list[ConfigError],
) -> tuple[list[PythonSource], list[str]]:
    """Return the files, read, and the names of modules."""
    files: list[PythonSource] = []
    modules: list[str] = []
    for name in names:
        if not name.endswith(".py"):
            modules.append(name)
            continue
        try:
            if Path(name).is_absolute():
                files.append(_read_own_file(name, snapshot, settings_folder))
            else:
                files.append(_workspace_file(name, snapshot))
        except ConfigError as error:
            errors.append(_add_place(error, where))
    return files, modules


def _workspace_file(name: str, snapshot: ConfigurationSnapshot) -> PythonSource:
    """Return a file of the workspace, as trust has read it."""
    data = snapshot.files.get(name)
    if data is not None:
        return PythonSource(name, Path(snapshot.workspace, name), data)
    path = Path(name)
    if any(str(part) in snapshot.links for part in (path, *path.parents)):
        raise ConfigError(
            f"`{name}` is a link, and links are not followed", hint="name the file that it leads to"
        )
    raise ConfigError(
        f"`{SETTING}` names `{name}`, and there is no such file in this folder",
        hint="write it, or take the name out",
    )


def _read_own_file(
    name: str, snapshot: ConfigurationSnapshot, settings_folder: Path | None
) -> PythonSource:
    real = Path(os.path.realpath(name))
    is_own = settings_folder is not None and real.is_relative_to(os.path.realpath(settings_folder))
    if snapshot.workspace and real.is_relative_to(snapshot.workspace) and not is_own:
        raise ConfigError(
            f"`{name}` lies in the workspace, where a tool could change it",
            hint=(
                f"name it under `{SETTING}` in .ferrule/ferrule.yaml there, where it counts once "
                "you trust the folder"
            ),
        )
    try:
        with real.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read `{name}`: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"`{name}` has more than {_MOST_BYTES} bytes")
    return PythonSource(name, real, data)


# ---- running them


class _Loader:
    """Makes modules of files, and controls what they import."""

    def __init__(self, files: Sequence[PythonSource], writable: CommandWritable) -> None:
        self._files = {file.path: file for file in files}
        self._writable = writable

    def load(self, file: PythonSource) -> ModuleType:
        """Return the module of a file, run if necessary. Raises whatever running it raises."""
        name = f"{file.path.stem}_{self._version(file)}"
        known = sys.modules.get(name)
        if known is not None:
            return known
        module = ModuleType(name)
        module.__file__ = str(file.path)
        module.__package__ = ""
        # The import statement looks for `__import__` in the module's built-ins, now and later when
        # its functions run.
        module.__dict__["__builtins__"] = {
            **vars(builtins),
            "__import__": partial(self._import, file),
        }
        # Annotations are resolved through `sys.modules`.
        sys.modules[name] = module
        try:
            code = _compile(file)
            # Its output must not mix with that of a command or the messages of a protocol.
            with redirect_stdout(sys.stderr):
                exec(code, module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def refuse_uncovered(self, name: str) -> None:
        """Raise ImportError if the top package of a module lies where commands can write."""
        top = name.partition(".")[0]
        if top in sys.modules:
            return
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            return
        place = find_writable_location(spec, self._writable)
        if place is not None:
            raise ImportError(
                (
                    f"`{top}` lies in `{place}`, where commands can write, and trust does not "
                    f"cover it: only files that `{SETTING}` names are run"
                ),
                name=top,
            )

    def _import(
        self,
        by: PythonSource,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Handle an `import` statement of a file. The parameters are those of `__import__`."""
        beside = self._files.get(by.path.with_name(f"{name}.py"))
        if level == 0 and beside is not None and beside is not by:
            return self.load(beside)
        if level == 0:
            self.refuse_uncovered(name)
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    def _version(self, file: PythonSource) -> str:
        """Return a digest of a file and of everything it may import from beside it."""
        digest = sha256(bytes(file.path))
        for path, other in sorted(self._files.items()):
            if path.parent == file.path.parent:
                digest.update(b"%b\0%d\0%b" % (bytes(path), len(other.data), other.data))
        return digest.hexdigest()[:16]


def _import_module(name: str, loader: _Loader) -> ModuleType:
    """Import an installed module. Raises whatever importing it raises."""
    loader.refuse_uncovered(name)
    with redirect_stdout(sys.stderr):
        return importlib.import_module(name)


# ---- what is in them


def _read_module(
    name: str, module: ModuleType, taken: set[int], *, spare: bool = False
) -> ModuleContents:
    """Return what a module provides. `taken` holds the ids of tools that other modules provided."""
    tools: list[Tool] = []
    functions: dict[str, Callable[..., Any]] = {}
    attributes: dict[str, Any] = vars(module)
    for key, value in attributes.items():
        if key.startswith("_"):
            continue
        candidates: Sequence[Any] = (value,)
        if key == "TOOLS" and isinstance(value, list | tuple):
            candidates = cast("Sequence[Any]", value)
        for candidate in candidates:
            if isinstance(candidate, Tool) and id(candidate) not in taken:
                taken.add(id(candidate))
                tools.append(replace(candidate, source=f"file {name}"))
        function = attributes[key]  # `value` has a narrower type here.
        if inspect.isfunction(function):
            functions[key] = function
    return ModuleContents(name, tuple(tools), functions, spare)


def _parse(file: PythonSource) -> ast.Module:
    try:
        return ast.parse(file.data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])  # Running the file reports the error.


def _imports(file: PythonSource) -> Iterator[str]:
    """Yield the names of the modules that a file imports anywhere."""
    for node in ast.walk(_parse(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _repeated_tools(file: PythonSource) -> Iterator[ConfigError]:
    """Yield an error for each tool that a later one of the same file silently replaces."""
    first_lines: dict[str, int] = {}
    for node in _parse(file).body:
        if not isinstance(node, _FUNCTIONS) or not any(map(_makes_tool, node.decorator_list)):
            continue
        line = node.decorator_list[0].lineno
        first = first_lines.setdefault(node.name, line)
        if first != line:
            yield ConfigError(
                f"{file.name}:{line}: the tool `{node.name}` is defined a second time "
                f"(first in line {first})",
                hint="rename one",
            )


def _makes_tool(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(named, ast.Name):
        return named.id == "tool"
    return isinstance(named, ast.Attribute) and named.attr == "tool"


def _compile(file: PythonSource) -> CodeType:
    # Without what this module itself imports from `__future__`.
    return compile(file.data, str(file.path), "exec", dont_inherit=True)


# ---- without running them


def check_python_files(
    names: Sequence[str], snapshot: ConfigurationSnapshot, where: str = ""
) -> list[ConfigError]:
    """Return the errors of a repository's `tools.python` that can be found without running it."""
    errors: list[ConfigError] = []
    relative = [name for name in names if not Path(name).is_absolute()]
    files, _ = _read_sources(relative, snapshot, None, where, errors)
    for file in files:
        try:
            _compile(file)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            errors.append(_run_error(file, error))
        errors.extend(_repeated_tools(file))
    return errors


def list_functions(data: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of a file's plain top-level functions, and of the tools it makes."""
    plain: set[str] = set()
    tools: set[str] = set()
    for node in _parse(PythonSource("", Path(), data)).body:
        if not isinstance(node, _FUNCTIONS):
            continue
        decorators = list(filter(_makes_tool, node.decorator_list))
        if decorators:
            tools.add(_given_name(decorators[0]) or node.name)
        else:
            plain.add(node.name)
    return frozenset(plain), frozenset(tools)


def _given_name(decorator: ast.expr) -> str:
    """Return the `name=` that a decorator gives, or "" if the function's name is kept."""
    if not isinstance(decorator, ast.Call):
        return ""
    for keyword in decorator.keywords:
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return ""


# ---- errors


def _run_error(file: PythonSource, error: BaseException) -> ConfigError:
    """Return the error of running a file, at the last line of it that was executing."""
    lines = [
        line
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(file.path)
    ]
    if isinstance(error, SyntaxError) and error.filename in (str(file.path), None):
        lines.append(error.lineno or 1)
    where = f"{file.name}:{lines[-1]}" if lines else file.name
    return ConfigError(
        f"{where}: it cannot be loaded: {_describe(error)}", hint=_next_step(file, error)
    )


def _import_error(name: str, error: BaseException, where: str) -> ConfigError:
    """Return the error of a module that `tools.python` names at `where`."""
    named = f"{where}: `{SETTING}` names `{name}`"
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ConfigError(f"{named}, and it cannot be imported: {_describe(error)}")
    if f"{name}.".startswith(f"{error.name}."):
        hint = f"a file is named with its ending, as in `{name}.py`; {_install_hint(error.name)}"
        return ConfigError(f"{named}, and no module of that name is installed", hint=hint)
    return ConfigError(
        f"{named}, and it cannot be imported: {_describe(error)}", hint=_install_hint(error.name)
    )


def _describe(error: BaseException) -> str:
    if isinstance(error, FerruleError):
        return f"{error.detail}; {error.hint}" if error.hint else error.detail
    kind = type(error).__name__
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{kind}: {text}"[:_LONGEST_ERROR] if text else kind


def _next_step(file: PythonSource, error: BaseException) -> str:
    if not isinstance(error, ImportError) or not error.name:
        return f"correct it, or take it out of `{SETTING}`"
    top = error.name.partition(".")[0]
    if file.path.with_name(f"{top}.py").is_file():
        return f"name `{top}.py` under `{SETTING}` too: only files that trust covers are run"
    if isinstance(error, ModuleNotFoundError):
        return _install_hint(top)
    return f"install it as a package outside the folder, or name its files under `{SETTING}`"


def _install_hint(name: str) -> str:
    return f"a missing package can be installed with `{sys.executable} -m pip install {name}`"
