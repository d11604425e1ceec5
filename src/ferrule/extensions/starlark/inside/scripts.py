"""Compile a script and call a function of it, each time in a fresh scope.

A text is parsed once and evaluated anew for each call, so no value lives from one call to the next.
What its top level defines is frozen before the function is called. A script that the library
refuses, or that fails, raises `Failed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .names import OUTPUT_BUILTINS, OWNER_BUILTINS, REWRITTEN_CALLS, WORKER_BUILTINS, full_name
from .preprocessing import find_recursion, rewrite_calls

MAX_DEPTH = 64
"""Nested calls at most."""
MAX_PARSED = 256
"""Parsed scripts that are kept."""
_WORD = re.compile(r"\w+")
_SPACES = frozenset((*OWNER_BUILTINS, *WORKER_BUILTINS, *OUTPUT_BUILTINS)) - {""}
_PLACE_BELOW = re.compile(r"\n\s*-->")
_LINES = re.compile(r"-->\s*(\S.*):(\d+):(\d+)")


class ScriptError(Exception):
    """A script was refused or went wrong.

    `reason` is `compile`, `fail`, `error`, `depth` or one of the worker's. `kind` is the error type
    of the built-in that failed, or "".
    """

    def __init__(self, reason: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.kind = kind


class Interpreter:
    """The Starlark library with our built-ins.

    `functions` maps full names (`fs.read`, `env`) to functions.
    """

    def __init__(self, functions: dict[str, Callable[..., Any]], stop: Callable[[], bool]) -> None:
        import starlark

        self._library = starlark
        self._dialect = starlark.Dialect.standard()
        self._dialect.enable_load = False
        self._dialect.enable_load_reexport = False
        self._dialect.enable_top_level_stmt = True
        extensions = starlark.LibraryExtension
        self._globals = starlark.Globals.extended_by([extensions.StructType, extensions.Json])
        self._options = starlark.EvalOptions(check_cancelled=stop, max_callstack_size=MAX_DEPTH)
        self._functions = functions
        self._parsed: dict[str, tuple[Any, frozenset[str]]] = {}
        self._openings: dict[tuple[frozenset[str], bool], tuple[list[str], Any]] = {}

    def is_parsed(self, digest: str) -> bool:
        """Return whether the script with this digest was parsed already."""
        return digest in self._parsed

    def parse(self, digest: str, source: str, file: str) -> None:
        """Parse a script. Raises Failed (`compile`) with its place."""
        recursion = find_recursion(source)
        if recursion is not None:
            name, line = recursion
            raise ScriptError(
                "compile",
                f"{file}:{line}: `{name}` calls itself; Starlark has no recursion, use a loop",
            )
        if len(self._parsed) >= MAX_PARSED:
            self._parsed.clear()
            self._openings.clear()
        try:
            parsed = self._library.parse(file, rewrite_calls(source), self._dialect)
        except self._library.StarlarkError as error:
            raise ScriptError("compile", _parse_error(str(error), file, source)) from None
        mentioned = _SPACES & frozenset(_WORD.findall(source))
        self._parsed[digest] = (parsed, mentioned)

    def call(self, digest: str, function: str, arguments: Sequence[Any], *, pure: bool) -> Any:
        """Return the value of a function.

        An empty `function` only evaluates the top level and returns None.
        """
        library = self._library
        module = library.Module()
        parsed, spaces = self._parsed[digest]
        names, opening = self._build_opening(spaces, pure)
        for name in names:
            module.add_callable(_internal_name(name), self._functions[name])
        try:
            library.eval(module, opening, self._globals)
            library.eval_with(self._options, module, parsed, self._globals)
            frozen = module.freeze()
            if not function:
                return None
            return frozen.call_with(self._options, function, *arguments).value
        except library.StarlarkError as error:
            raise _run_error(str(error), function) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise ScriptError("error", f"its result cannot be written as JSON: {error}") from None

    def _build_opening(self, wanted: frozenset[str], pure: bool) -> tuple[list[str], Any]:
        """Return the built-ins of a module, and the text that puts them into namespaces.

        Namespaces that a script does not mention (`wanted`) are left out: each call would pay for
        each of their names.
        """
        known = self._openings.get((wanted, pure))
        if known is not None:
            return known
        spaces: dict[str, list[str]] = {}
        for table in (
            (WORKER_BUILTINS, OUTPUT_BUILTINS)
            if pure
            else (OWNER_BUILTINS, WORKER_BUILTINS, OUTPUT_BUILTINS)
        ):
            for space, members in table.items():
                if space in wanted or not space:
                    spaces.setdefault(space, []).extend(members)
        plain = spaces.pop("")
        lines = [f"{name} = {_internal_name(name)}" for name in plain]
        for space, members in spaces.items():
            fields = ", ".join(
                f"{member}={_internal_name(full_name(space, member))}" for member in members
            )
            lines.append(f"{space} = struct({fields})")
        names = [*plain, *REWRITTEN_CALLS]
        for space, members in spaces.items():
            names += [full_name(space, member) for member in members]
        text = self._library.parse("built-ins", "\n".join(lines) + "\n", self._dialect)
        self._openings[wanted, pure] = (names, text)
        return names, text


def _internal_name(name: str) -> str:
    return "_ferrule_" + name.replace(".", "_")


def _run_error(text: str, function: str) -> ScriptError:
    message = _to_one_line(text)
    if f"has no symbol `{function}`" in text:
        return ScriptError("compile", f"the script defines no function `{function}`")
    if "call stack overflow" in text.lower() or "stack size" in text.lower():
        return ScriptError("depth", f"calls are nested deeper than {MAX_DEPTH}: {message}")
    reason = "fail" if "error: fail:" in text else "error"
    return ScriptError(reason, message.replace("fail: ", "", 1))


def _to_one_line(text: str) -> str:
    """Return an error of the library in one line: `file:line: what`.

    It draws the place in several.
    """
    description = text.rpartition("error: ")[2]
    message = _PLACE_BELOW.split(description)[0].strip()
    places = _LINES.findall(text)
    if not places:
        return message
    file, line, _ = places[-1]
    return f"{file}:{line}: {message}"


def _parse_error(text: str, file: str, source: str) -> str:
    """Return why a script cannot be parsed, with its place.

    At the end of a script the library reports line 1 without drawing it.
    """
    at_end = "unexpected new line" in text and not re.search(r"^ *1 \|", text, re.MULTILINE)
    if not at_end:
        message = _to_one_line(text)
        # The name that requirement 003 has; Starlark reserves the word.
        hint = "; the built-in is `task.wait`" if "task.await" in source else ""
        return message + hint if "keyword `await`" in message else message
    last = len(source.rstrip().splitlines())
    expected = _to_one_line(text).partition(", expected ")[2]
    return f"{file}:{last}: the script ends here, expected {expected}"
