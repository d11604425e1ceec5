"""Tools written in Python: files of a trusted folder, the person's own files, and modules that are
installed (`tools.python`).

A file brings every tool that it names at its top level (`@tool`, `define_tool`, or in a list
`TOOLS`). Its plain functions are handlers for tool files without a script (`handlers`).

* A file of a workspace is run from the bytes that `storage.trust` read and that a person trusted;
  the disk is not read again.
* Such a file imports what is installed, and files beside it that `tools.python` names too. Whatever
  else lies in the workspace is refused, also where `sys.path` or an editable install would find it:
  trust does not cover it, and a tool could have changed it.
* A file is run once in a process, and again only where its bytes, or those of a named file beside
  it, have changed.

Not protected: what runs here is part of this process and has all rights of the person. No sandbox
holds it; the gate judges its calls by what each tool says of itself.
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
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.storage.trust import Snapshot
from ferrule.tools.definition import Tool

SETTING = "tools.python"
_LONGEST = 1 << 20
"""Bytes of a person's file."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SHOWN = 500
"""Characters of somebody else's error."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file to run. `name` is what people know it by, `path` is absolute."""

    name: str
    path: Path
    data: bytes


@dataclass(frozen=True, slots=True)
class Brought:
    """What one file or module brings. `spare`: another file imports it, so it may be without
    tools.
    """

    name: str
    tools: tuple[Tool, ...]
    functions: Mapping[str, Callable[..., Any]]
    spare: bool = False

    def place(self, function: Callable[..., Any]) -> str:
        """`file:line` of something in it, as far as that can be known."""
        code = getattr(inspect.unwrap(function), "__code__", None)
        return f"{self.name}:{code.co_firstlineno}" if code is not None else self.name


@dataclass(frozen=True, slots=True)
class PythonTools:
    """What Python brings to a run, and what is wrong with it."""

    brought: tuple[Brought, ...] = ()
    wrong: list[ConfigError] = field(default_factory=list[ConfigError])

    def handler(self, tool: str) -> Callable[..., Any] | None:
        """The function for a tool file without a script, by `handler_name`.

        Raises ConfigError where two files have one.
        """
        name = handler_name(tool)
        found = [one for one in self.brought if name in one.functions]
        if len({id(one.functions[name]) for one in found}) > 1:
            places = " and ".join(one.place(one.functions[name]) for one in found)
            raise ConfigError(
                f"{places}: both are a handler for the tool file `{tool}`", hint="rename one"
            )
        return found[0].functions[name] if found else None

    def idle(self, handlers: Iterable[Callable[..., Any]]) -> Iterator[ConfigError]:
        """An error for each file that brings neither a tool nor one of these handlers."""
        used = {id(one) for one in handlers}
        for one in self.brought:
            if (
                one.tools
                or one.spare
                or used & {id(function) for function in one.functions.values()}
            ):
                continue
            yield ConfigError(
                f"{one.name}: there is no tool in it",
                hint=(
                    "put `@tool` (`from ferrule import tool`) above a function, or take the "
                    f"file out of `{SETTING}`"
                ),
            )


def handler_name(tool: str) -> str:
    """The name of the function that is the handler of a tool file: the tool's, with `_` for `-` and
    `.`.
    """
    return tool.replace("-", "_").replace(".", "_")


def load_python(
    names: Sequence[str], seen: Snapshot, *, own: Path | None = None, where: str = ""
) -> PythonTools:
    """Run the files and modules of `tools.python`, and say what they bring. What is wrong with them
    is in `wrong`.

    Relative names are files of the workspace, taken from `seen`; absolute ones are the person's, of
    `own` or elsewhere outside the workspace. `where` is the place of the setting.
    """
    loaded = PythonTools()
    if not names:
        return loaded
    files, modules = _sources(names, seen, own, where or SETTING, loaded.wrong)
    loader = _Loader(files, Path(seen.workspace))
    imported = {name for file in files for name in _imported(file)}
    found: list[Brought] = []
    taken: set[int] = set()
    for file in files:
        try:
            module = loader.load(file)
        except (Exception, SystemExit) as error:  # noqa: BLE001  a program of somebody: whatever it raises is said, with its place
            loaded.wrong.append(_failed(file, error))
            continue
        loaded.wrong.extend(_defined_twice(file))
        found.append(_brought(file.name, module, taken, spare=file.path.stem in imported))
    for name in modules:
        try:
            module = _module(name, loader)
        except (Exception, SystemExit) as error:  # noqa: BLE001  a program of somebody: whatever it raises is said
            loaded.wrong.append(_not_imported(name, error, where or SETTING))
            continue
        found.append(_brought(name, module, taken))
    return PythonTools(tuple(found), loaded.wrong)


def _moved(error: ConfigError, where: str) -> ConfigError:
    """The same error at the place that led to it."""
    return ConfigError(f"{where}: {error.detail}", hint=error.hint)


# ---- which files


def _sources(
    names: Iterable[str], seen: Snapshot, own: Path | None, where: str, wrong: list[ConfigError]
) -> tuple[list[Source], list[str]]:
    """The files, read, and the names of modules."""
    files: list[Source] = []
    modules: list[str] = []
    for name in names:
        if not name.endswith(".py"):
            modules.append(name)
            continue
        try:
            files.append(
                _of_person(name, seen, own) if Path(name).is_absolute() else _of_folder(name, seen)
            )
        except ConfigError as error:
            wrong.append(_moved(error, where))
    return files, modules


def _of_folder(name: str, seen: Snapshot) -> Source:
    """A file of the workspace, as trust has seen it."""
    data = seen.files.get(name)
    if data is not None:
        return Source(name, Path(seen.workspace, name), data)
    folders = (str(one) for one in (Path(name), *Path(name).parents))
    if any(folder in seen.links for folder in folders):
        raise ConfigError(
            f"`{name}` is a link, and links are not followed", hint="name the file that it leads to"
        )
    raise ConfigError(
        f"`{SETTING}` names `{name}`, and there is no such file in this folder",
        hint="write it, or take the name out",
    )


def _of_person(name: str, seen: Snapshot, own: Path | None) -> Source:
    real = Path(os.path.realpath(name))
    mine = own is not None and real.is_relative_to(os.path.realpath(own))
    if seen.workspace and real.is_relative_to(seen.workspace) and not mine:
        raise ConfigError(
            f"`{name}` lies in the workspace, where a tool could change it",
            hint=(
                f"name it under `{SETTING}` in .ferrule/ferrule.yaml there, where it counts once "
                "you trust the folder"
            ),
        )
    try:
        with real.open("rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read `{name}`: {error.strerror}") from error
    if len(data) > _LONGEST:
        raise ConfigError(f"`{name}` has more than {_LONGEST} bytes")
    return Source(name, real, data)


# ---- running them


class _Loader:
    """Makes modules of files. What they import is looked at on the way."""

    def __init__(self, files: Sequence[Source], root: Path) -> None:
        self._files = {file.path: file for file in files}
        self._root = root

    def load(self, file: Source) -> ModuleType:
        """The module of a file: the one there is, or a new one. Raises whatever running it
        raises.
        """
        name = f"{file.path.stem}_{self._version(file)}"
        known = sys.modules.get(name)
        if known is not None:
            return known
        module = ModuleType(name)
        module.__file__ = str(file.path)
        module.__package__ = ""
        # The import statement asks the module's own built-ins, now and when its functions run
        # later.
        module.__dict__["__builtins__"] = {
            **vars(builtins),
            "__import__": partial(self._import, file),
        }
        # Types of its annotations are looked up here.
        sys.modules[name] = module
        try:
            code = compile(file.data, str(file.path), "exec", dont_inherit=True)
            # What it prints must not stand between the answers of a command or the messages of a
            # protocol.
            with redirect_stdout(sys.stderr):
                exec(code, module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def refuse_uncovered(self, name: str) -> None:
        """Raise ImportError if the first part of a module's name would be found in the
        workspace.
        """
        top = name.partition(".")[0]
        if top in sys.modules:
            return
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            return
        for place in _places(spec):
            if place.is_relative_to(self._root) and not place.is_relative_to(
                os.path.realpath(sys.prefix)
            ):
                raise ImportError(
                    (
                        f"`{top}` lies in this folder, and trust does not cover it: only files "
                        f"that `{SETTING}` names are run"
                    ),
                    name=top,
                )

    def _import(
        self,
        by: Source,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What an `import` statement of a file asks for. The parameters are those of
        `__import__`.
        """
        beside = self._files.get(by.path.with_name(f"{name}.py"))
        if level == 0 and beside is not None and beside is not by:
            return self.load(beside)
        if level == 0:
            self.refuse_uncovered(name)
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    def _version(self, file: Source) -> str:
        """Stands for the bytes of a file and of all that it may import from beside it."""
        digest = sha256(bytes(file.path))
        for path, other in sorted(self._files.items()):
            if path.parent == file.path.parent:
                digest.update(b"%b\0%d\0%b" % (bytes(path), len(other.data), other.data))
        return digest.hexdigest()[:16]


def _places(spec: Any) -> Iterator[Path]:
    if spec is None:
        return
    named = [spec.origin] if spec.has_location else []
    for one in (*named, *(spec.submodule_search_locations or ())):
        yield Path(os.path.realpath(one))


def _module(name: str, loader: _Loader) -> ModuleType:
    """An installed module. Raises whatever importing it raises."""
    loader.refuse_uncovered(name)
    with redirect_stdout(sys.stderr):
        return importlib.import_module(name)


# ---- what is in them


def _brought(name: str, module: ModuleType, taken: set[int], *, spare: bool = False) -> Brought:
    """What a module holds. A tool that several of them import comes once: `taken` knows which there
    are.
    """
    tools: list[Tool] = []
    functions: dict[str, Callable[..., Any]] = {}
    held: dict[str, Any] = vars(module)
    for key, value in held.items():
        if key.startswith("_"):
            continue
        listed: Sequence[Any] = (
            held[key] if key == "TOOLS" and isinstance(value, list | tuple) else (held[key],)
        )
        for one in listed:
            if isinstance(one, Tool) and id(one) not in taken:
                taken.add(id(one))
                tools.append(replace(one, source=f"file {name}"))
        if inspect.isfunction(held[key]):
            functions[key] = held[key]
    return Brought(name, tuple(tools), functions, spare)


def _tree(file: Source) -> ast.Module | None:
    try:
        return ast.parse(file.data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # Whoever runs it says what is wrong.


def _imported(file: Source) -> Iterator[str]:
    """Names of the modules that a file imports, wherever in it."""
    tree = _tree(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _defined_twice(file: Source) -> Iterator[ConfigError]:
    """An error for each tool that a later one of the same file replaces without a word."""
    tree = _tree(file)
    first: dict[str, int] = {}
    for node in tree.body if tree is not None else ():
        if not isinstance(node, _FUNCTIONS) or not any(map(_makes_tool, node.decorator_list)):
            continue
        line = node.decorator_list[0].lineno
        if node.name in first:
            said = f"{file.name}:{line}: the tool `{node.name}` is defined a second time"
            yield ConfigError(f"{said} (first in line {first[node.name]})", hint="rename one")
        first.setdefault(node.name, line)


def _makes_tool(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (isinstance(named, ast.Name) and named.id == "tool") or (
        isinstance(named, ast.Attribute) and named.attr == "tool"
    )


# ---- without running them


def check_python(names: Sequence[str], seen: Snapshot, where: str = "") -> list[ConfigError]:
    """What can be known to be wrong with the files of a repository's `tools.python` while nothing
    of them runs.
    """
    wrong: list[ConfigError] = []
    files, _ = _sources(
        [name for name in names if not Path(name).is_absolute()], seen, None, where, wrong
    )
    for file in files:
        try:
            compile(file.data, str(file.path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            wrong.append(_failed(file, error))
        wrong.extend(_defined_twice(file))
    return wrong


def functions_of(data: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the plain functions at the top level of a file, and of the tools that it plainly
    makes there.
    """
    tree = _tree(Source("", Path(), data))
    plain: set[str] = set()
    tools: set[str] = set()
    for node in tree.body if tree is not None else ():
        if not isinstance(node, _FUNCTIONS):
            continue
        made = [one for one in node.decorator_list if _makes_tool(one)]
        if made:
            tools.add(_named_by(made[0]) or node.name)
        else:
            plain.add(node.name)
    return frozenset(plain), frozenset(tools)


def _named_by(decorator: ast.expr) -> str:
    """The `name=` that a decorator gives; empty where it leaves the function's."""
    for one in decorator.keywords if isinstance(decorator, ast.Call) else ():
        if one.arg == "name" and isinstance(one.value, ast.Constant):
            return str(one.value.value)
    return ""


# ---- errors


def _failed(file: Source, error: BaseException) -> ConfigError:
    """What went wrong while a file was run, at the last line of it that was at work."""
    lines = [
        line
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(file.path)
    ]
    if isinstance(error, SyntaxError) and error.filename in (str(file.path), None):
        lines.append(error.lineno or 1)
    where = f"{file.name}:{lines[-1]}" if lines else file.name
    return ConfigError(
        f"{where}: it cannot be loaded: {_said(error)}", hint=_next_step(file, error)
    )


def _not_imported(name: str, error: BaseException, where: str) -> ConfigError:
    """What is wrong with a module that `tools.python` names at `where`."""
    named = f"{where}: `{SETTING}` names `{name}`"
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ConfigError(f"{named}, and it cannot be imported: {_said(error)}")
    if f"{name}.".startswith(f"{error.name}."):
        hint = f"a file is named with its ending, as in `{name}.py`; {_install(error.name)}"
        return ConfigError(f"{named}, and no module of that name is installed", hint=hint)
    return ConfigError(
        f"{named}, and it cannot be imported: {_said(error)}", hint=_install(error.name)
    )


def _said(error: BaseException) -> str:
    if isinstance(error, FerruleError):
        return f"{error.detail}; {error.hint}" if error.hint else error.detail
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}"[:_SHOWN] if text else type(error).__name__


def _next_step(file: Source, error: BaseException) -> str:
    if not isinstance(error, ImportError) or not error.name:
        return f"correct it, or take it out of `{SETTING}`"
    top = error.name.partition(".")[0]
    if file.path.with_name(f"{top}.py").is_file():
        return (
            f"name `{top}.py` under `{SETTING}` too: nothing of a folder is run that trust does "
            "not cover"
        )
    if isinstance(error, ModuleNotFoundError):
        return _install(top)
    return f"install it as a package that lies elsewhere, or name its files under `{SETTING}`"


def _install(name: str) -> str:
    return f"what is not there can be installed with `{sys.executable} -m pip install {name}`"
