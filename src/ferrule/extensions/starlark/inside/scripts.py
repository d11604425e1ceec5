"""Compiles a script and calls a function of it, in a scope of its own each time.

A text is parsed once and evaluated anew for each call, so no value lives from one call to the next;
what its top level made is frozen before the function is called. A script that the library refuses,
or that fails, raises `Failed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .calls import rewritten
from .names import ASKED, CALLED, COMPUTED, TOLD, full
from .recursion import recursion

DEPTH = 64
"""Calls inside calls at the most."""
KEPT = 256
"""Parsed scripts that are kept."""
_WORD = re.compile(r"\w+")
_SPACES = frozenset(space for table in (ASKED, COMPUTED, TOLD) for space in table if space)
_PLACE_BELOW = re.compile(r"\n\s*-->")
_LINES = re.compile(r"-->\s*(\S.*):(\d+):(\d+)")


class Failed(Exception):
    """A script was refused or went wrong: `reason` is `compile`, `fail`, `error`, `depth` or one of
    the worker's.

    `kind` is the type of the built-in's error that it did not survive, or empty.
    """

    def __init__(self, reason: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.kind = reason, message, kind


class Scripts:
    """The Starlark library with our names in it. `functions` maps full names (`fs.read`, `env`) to
    what they do.
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
        self._options = starlark.EvalOptions(check_cancelled=stop, max_callstack_size=DEPTH)
        self._functions = functions
        self._parsed: dict[str, tuple[Any, frozenset[str]]] = {}
        self._openings: dict[tuple[frozenset[str], bool], tuple[list[str], Any]] = {}

    def knows(self, digest: str) -> bool:
        """Whether the text with this digest was parsed already."""
        return digest in self._parsed

    def parse(self, digest: str, source: str, file: str) -> None:
        """Read a text. Raises Failed (`compile`) with its place."""
        if (found := recursion(source)) is not None:
            name, line = found
            raise Failed(
                "compile",
                f"{file}:{line}: `{name}` calls itself; Starlark has no recursion, use a loop",
            )
        if len(self._parsed) >= KEPT:
            self._parsed.clear()
            self._openings.clear()
        try:
            parsed = self._library.parse(file, rewritten(source), self._dialect)
        except self._library.StarlarkError as error:
            raise Failed("compile", _unparsed(str(error), file, source)) from None
        self._parsed[digest] = parsed, _SPACES & frozenset(_WORD.findall(source))

    def call(self, digest: str, function: str, arguments: Sequence[Any], *, pure: bool) -> Any:
        """The value that `function` returns. An empty `function` evaluates the text's top level and
        returns None.
        """
        library, module = self._library, self._library.Module()
        parsed, spaces = self._parsed[digest]
        names, opening = self._opening(spaces, pure)
        for name in names:
            module.add_callable(_hidden(name), self._functions[name])
        try:
            library.eval(module, opening, self._globals)
            library.eval_with(self._options, module, parsed, self._globals)
            frozen = module.freeze()
            return frozen.call_with(self._options, function, *arguments).value if function else None
        except library.StarlarkError as error:
            raise _failed(str(error), function) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise Failed("error", f"its result cannot be written as JSON: {error}") from None

    def _opening(self, wanted: frozenset[str], pure: bool) -> tuple[list[str], Any]:
        """The names that are given to a module, and the text that puts them into namespaces: those
        in `wanted`, and plain functions.

        A namespace that a script does not mention is left out: a call would pay for each of its
        names.
        """
        found = self._openings.get((wanted, pure))
        if found is not None:
            return found
        spaces: dict[str, list[str]] = {}
        for table in (COMPUTED, TOLD) if pure else (ASKED, COMPUTED, TOLD):
            for space, members in table.items():
                if space in wanted or not space:
                    spaces.setdefault(space, []).extend(members)
        plain = spaces.pop("")
        lines = [f"{name} = {_hidden(name)}" for name in plain]
        for space, members in spaces.items():
            fields = ", ".join(f"{member}={_hidden(full(space, member))}" for member in members)
            lines.append(f"{space} = struct({fields})")
        used = [
            *plain,
            *CALLED,
            *(full(space, one) for space, members in spaces.items() for one in members),
        ]
        text = self._library.parse("built-ins", "\n".join(lines) + "\n", self._dialect)
        found = self._openings[wanted, pure] = used, text
        return found


def _hidden(name: str) -> str:
    return "_ferrule_" + name.replace(".", "_")


def _failed(text: str, function: str) -> Failed:
    message = told(text)
    if f"has no symbol `{function}`" in text:
        return Failed("compile", f"the script defines no function `{function}`")
    if "call stack overflow" in text.lower() or "stack size" in text.lower():
        return Failed("depth", f"calls are nested deeper than {DEPTH}: {message}")
    return Failed("fail" if "error: fail:" in text else "error", message.replace("fail: ", "", 1))


def told(text: str) -> str:
    """What the library says, in one line: `file:line: what`. It draws the place in several."""
    said = text.rpartition("error: ")[2] if "error: " in text else text
    what = _PLACE_BELOW.split(said)[0].strip()
    places = _LINES.findall(text)
    if not places:
        return what
    file, line, _ = places[-1]
    return f"{file}:{line}: {what}"


def _unparsed(text: str, file: str, source: str) -> str:
    """Why a text cannot be read, with its place. The library gives its end as line 1 and draws
    nothing there.
    """
    at_end = "unexpected new line" in text and not re.search(r"^ *1 \|", text, re.MULTILINE)
    if not at_end:
        return told(text)
    last = len(source.rstrip().splitlines())
    expected = told(text).partition(", expected ")[2]
    return f"{file}:{last}: the script ends here, expected {expected}"
