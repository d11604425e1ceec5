"""Check the text that a run ended with, or the text of a file."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.engine.output.output_type import SchemaType
from ferrule.tools.safe_patterns import compile_regex

from .cases import ExpectedText
from .evidence import Evidence

CheckFunction = Callable[[str, Evidence], Any]
"""Takes a text and the evidence. True, None and "" pass; a text is the reason why it does not."""

_SHOWN = 200


class CheckFunctions:
    """The functions that cases may name.

    A file of cases may come from anybody, and importing a module runs it. So a person names the
    modules whose functions are called.

    Args:
        allowed: Modules by name, or files (`checks.py`, whose functions are `checks:...`); None for
            every module, where the code of the project runs anyway.
    """

    def __init__(self, allowed: Iterable[str] | None = ()) -> None:
        self._allowed = None if allowed is None else dict(map(_name_module, allowed))

    def load(self, name: str) -> CheckFunction:
        """Return the function `module:function`.

        Raises:
            ConfigError: A person did not name its module, or there is no such function.
        """
        module, _, function = name.partition(":")
        if self._allowed is not None and module not in self._allowed:
            raise ConfigError(
                f"`{name}` is code that a file of cases names, and nobody said it may run",
                code="untrusted",
                hint=f"add --functions {module} (or its file) if it is yours",
            )
        path = (self._allowed or {}).get(module)
        try:
            loaded = importlib.import_module(module) if path is None else _load(module, path)
        except ImportError as error:
            raise ConfigError(f"`{name}`: {error}", hint="is it installed, or a file?") from error
        found = getattr(loaded, function, None)
        if not callable(found):
            raise ConfigError(f"`{name}`: the module has no function `{function}`")
        return cast("CheckFunction", found)


def _name_module(given: str) -> tuple[str, Path | None]:
    path = Path(given)
    return (path.stem, path) if path.suffix == ".py" else (given, None)


def _load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"ferrule_checks_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"`{path}` is not a Python file")
    loaded = sys.modules.get(spec.name)
    if loaded is None:
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
    return loaded


def find_text_problems(text: str | None, expected: ExpectedText | None) -> list[str]:
    """Return a sentence for each thing that a text should be and is not.

    Functions and rubrics are not asked here. None stands for a file that is not there.
    """
    if text is None or expected is None:
        if text is None and expected is not None:
            return ["is not there"]
        return [] if text is None else ["is there, and must not be"]
    return list(_iter_problems(text, expected))


def _iter_problems(text: str, expected: ExpectedText) -> Iterator[str]:
    shown = _shorten(text)
    if expected.equals is not None and text.strip() != expected.equals.strip():
        yield f"must be {expected.equals[:_SHOWN]!r}, found {shown}"
    for part in expected.contains:
        if part not in text:
            yield f"must contain {part!r}, found {shown}"
    for part in expected.lacks:
        if part in text:
            yield f"must not contain {part!r}, found {shown}"
    if expected.regex and not compile_regex(expected.regex)(text):
        yield f"must match `{expected.regex}`, found {shown}"
    if expected.schema is not None:
        yield from _find_schema_problems(text, expected)


def _find_schema_problems(text: str, expected: ExpectedText) -> Iterator[str]:
    assert expected.schema is not None
    try:
        value = parse_json(text)
    except ValueError:
        yield f"must be JSON, found {_shorten(text)}"
        return
    yield from (
        f"does not fit the schema: {problem}"
        for problem in SchemaType(expected.schema).find_problems(value)
    )


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


async def ask_function(function: CheckFunction, text: str, evidence: Evidence) -> str:
    """Call a person's function, in a thread if it is not async. Return a reason, or ""."""
    try:
        if inspect.iscoroutinefunction(function):
            answer: Any = await function(text, evidence)
        else:
            answer = await asyncio.to_thread(function, text, evidence)
    except AssertionError as error:
        return str(error) or "an assertion failed"
    except Exception as error:  # noqa: BLE001  boundary: somebody's function, and its failure is the result
        return f"the function failed: {type(error).__name__}: {error}"
    if answer is True or answer is None:
        return ""
    return answer if isinstance(answer, str) else "the function returned False"
