"""Check a tool file before it is used: its shape, its script, its parameters, its examples.

Only the top level of a script is run for this, in a worker whose built-ins refuse everything. So
checking a file has no effect outside and needs no trust. A file's own tests are run by `runs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.extensions.front_matter import Warned, get_field, parse_document, text_of
from ferrule.extensions.starlark.pool import Pool, shared
from ferrule.extensions.starlark.script import Bounds, Script, ScriptFailed
from ferrule.extensions.tool_files.tool_file import Case, ToolFile, parse_tool, understated
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.tools.define import DefaultedArguments

from .scripts import Looked, Text

_BOUNDS = Bounds(seconds=5.0)
_PLACE = re.compile(r"(?P<file>(?:(?!: )[^\n`])+?):(?P<line>\d+)(?::(?P<column>\d+))?: ")
_BROKEN = ("compile", "depth", "timeout", "memory", "error", "fail")
"""Reasons why a script whose top level failed is wrong.

`builtin` is not one of them: a run may answer the built-in.
"""

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file. An `error` keeps the file from being used.

    `line` and `column` count from 1; they are 0 where there is none.
    """

    level: Level
    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    @property
    def where(self) -> str:
        """The place `file:line:column`, as far as it is known."""
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join([self.file, *numbers])

    def __str__(self) -> str:
        text = f"{self.where}: {self.level}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


def problem(where: str, message: str, hint: str = "", *, level: Level = "error") -> Problem:
    """Make a problem at `file:line:column`, `file:line` or `file`.

    A place at the beginning of the message takes precedence.
    """
    nearer = _PLACE.match(message)
    if nearer:
        where = nearer[0].removesuffix(": ")
        message = message[nearer.end() :]
    place = _PLACE.fullmatch(f"{where}: ")
    if place is None:
        return Problem(level, where, 0, 0, message, hint)
    line = int(place["line"])
    column = int(place["column"] or 0)
    return Problem(level, place["file"], line, column, message, hint)


def problems_of(error: ConfigError, file: str) -> list[Problem]:
    """Convert a parse error, which may list several problems, one per line."""
    lines = [line for line in error.detail.splitlines() if line] or [error.detail]
    placed = [line for line in lines if _PLACE.match(line) or line.startswith(file)]
    if len(placed) < len(lines):
        return [problem(file, error.detail.removeprefix(f"{file}: "), error.hint)]
    hint = error.hint if len(lines) == 1 else ""
    return [problem(file, line.removeprefix(f"{file}: "), hint) for line in lines]


def warnings_of(warned: Iterable[Warned]) -> list[Problem]:
    """Convert parse warnings to problems."""
    return [problem(one.where, one.message, level="warning") for one in warned]


# ---- tools


async def check_tool(data: bytes, file: str, *, pool: Pool | None = None) -> list[Problem]:
    """Return everything that is wrong with a tool file, warnings included.

    `file` is its name as people see it.
    """
    try:
        parsed = parse_tool(data, file)
    except ConfigError as error:
        return problems_of(error, file)
    return await check_parsed(parsed, data, pool=pool)


async def check_parsed(tool: ToolFile, data: bytes, *, pool: Pool | None = None) -> list[Problem]:
    """Check a tool that was already parsed, alone or within another file (`data` is all of it)."""
    node = _node_of(tool, data)
    understatement = understated(node, tool.script)
    # Some warnings of the parser are reported more precisely below.
    warnings = [
        warning
        for warning in tool.warnings
        if warning != understatement and "defines no function `run" not in warning.message
    ]
    found = warnings_of(warnings)
    if understatement is not None:
        hint = "write `side_effect: external`, or leave it out"
        found.append(problem(understatement.where, understatement.message, hint))
    if tool.description == tool.name:
        message = "there is no description: the model sees only the tool's name"
        hint = "say in a sentence what it does"
        found.append(problem(node.where, message, hint, level="warning"))
    try:
        arguments = DefaultedArguments(tool.name, dict(tool.schema))
    except ConfigError as error:
        place = get_field(node, "parameters") or node
        return [*found, problem(place.where, error.detail, error.hint)]
    found += _check_examples(tool, arguments, node)
    for case in tool.cases:
        misfits = arguments.check(case.arguments).problems
        if case.fails is None and misfits:
            message = f"the test's arguments do not fit: {'; '.join(misfits)}"
            found.append(problem(case.where, message))
    if tool.script is not None:
        found += await check_script(tool.script, "run", ("args",), pool=pool)
        found += _check_parameters(tool, tool.script, node)
    return found


async def check_script(
    script: Script,
    function: str,
    parameters: Sequence[str],
    *,
    pure: bool = False,
    pool: Pool | None = None,
) -> list[Problem]:
    """Check that a script compiles, defines its function, and names only existing built-ins.

    `pure`: only those built-ins that hooks have.
    """
    found: list[Problem] = []
    failure = await compiled(script, pool, pure=pure)
    if failure is not None:
        found.append(problem(failure.where, failure.message))
    text = Text(script.source)
    entry_problem = text.entry(function, parameters)
    if entry_problem is not None:
        line, message = entry_problem
        found.append(problem(_place_in(script, line), message))
    for line, written, near in text.strangers():
        hint = f"did you mean `{near}`?" if near else ""
        found.append(problem(_place_in(script, line), f"there is no built-in `{written}`", hint))
    return found


def _check_parameters(tool: ToolFile, script: Script, node: Node) -> Iterator[Problem]:
    """Yield problems about parameters that are read but not declared, or never read."""
    use = Text(script.source).looks("run", 0)
    if use is None:
        return
    declared: Mapping[str, Any] = tool.schema.get("properties", {})
    for name, line in use.read.items():
        if name in declared:
            continue
        # Undeclared arguments are accepted unless the file is strict, so a script may test for one.
        optional = not tool.strict and (name not in use.needed or name in use.asked)
        near = get_close_matches(name, declared, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"declare it: `{name}: {{ type: string }}`"
        message = f"the script reads `{name}`, which is no parameter"
        level = "warning" if optional else "error"
        yield problem(_place_in(script, line), message, hint, level=level)
    yield from _check_missing(tool, use, script)
    if use.hidden:
        return
    places = (get_field(node, "parameters") or node).pairs or {}
    for name in declared:
        if name not in use.read and name not in use.asked:
            where = places[name][0].where if name in places else node.where
            yield problem(where, f"the script never reads the parameter `{name}`", level="warning")


def _check_missing(tool: ToolFile, use: Looked, script: Script) -> Iterator[Problem]:
    """Yield warnings about optional parameters that the script reads as if they were given."""
    required = tool.schema.get("required", ())
    properties = tool.schema.get("properties", {})
    for name, line in use.needed.items():
        schema = properties.get(name)
        if schema is None or name in required or "default" in schema:
            continue
        if name in use.asked or name in use.made:
            continue
        message = f"`{name}` may be left out, and then this fails"
        hint = f'write `args.get("{name}")`, or make it required or give it a default'
        yield problem(_place_in(script, line), message, hint, level="warning")


def _check_examples(tool: ToolFile, arguments: DefaultedArguments, node: Node) -> Iterator[Problem]:
    listed = get_field(node, "examples")
    items = (listed.items if listed is not None else None) or []
    for number, example in enumerate(tool.examples):
        where = items[number].where if number < len(items) else node.where
        for misfit in arguments.check(example["arguments"]).problems:
            yield problem(where, f"an example does not fit the parameters: {misfit}")


def _node_of(tool: ToolFile, data: bytes) -> Node:
    """Return the mapping that a tool was parsed from.

    It is the front matter, or an entry in a list of tools.
    """
    if tool.file.endswith((".yaml", ".yml")):
        fields = parse_yaml(data, tool.file)
    else:
        fields = parse_document(data, tool.file).fields
    listed = get_field(fields, "tools")
    items = (listed.items if listed is not None else None) or []
    for item in items:
        if item.pairs is not None and text_of(item, "name") == tool.name:
            return item
    return fields


def _place_in(script: Script, line: int) -> str:
    return f"{script.file}:{script.line + line - 1}"


# ---- scripts


async def compiled(
    script: Script, pool: Pool | None = None, *, pure: bool = False
) -> Warned | None:
    """Return why a script cannot be compiled, or None."""
    try:
        await (pool or shared()).run(script, "", bounds=_BOUNDS, pure=pure)
    except ScriptFailed as failed:
        if failed.reason in _BROKEN:
            return _make_warning(f"{script.file}:{script.line}", failed.message)
    return None


def _make_warning(where: str, message: str) -> Warned:
    """Make a warning, at the place that the message begins with, if any."""
    place = _PLACE.match(message)
    if place is None:
        return Warned(where, message)
    return Warned(place[0].removesuffix(": "), message[place.end() :])


# ---- tests and examples, without a run


async def find_problems(file: ToolFile, *, pool: Pool | None = None) -> list[Warned]:
    """Return what keeps a tool from being used, its tests included, without a run.

    Tests run in a worker with the answers that they give and no others: enough to know whether a
    file that a run makes for itself is consistent. A person's own check is `check_tool`, and `runs`
    for the tests.
    """
    try:
        arguments = DefaultedArguments(file.name, dict(file.schema))
    except ConfigError as error:
        return [Warned(file.file, error.detail)]
    found: list[Warned] = []
    for example in file.examples:
        for misfit in arguments.check(example["arguments"]).problems:
            found.append(Warned(file.file, f"an example does not fit the parameters: {misfit}"))
    if file.script is None:
        return found
    pool = pool or shared()
    failure = await compiled(file.script, pool)
    if failure is not None:
        return [*found, failure]
    for case in file.cases:
        failure = await _run_test(file.script, case, arguments, pool)
        if failure is not None:
            found.append(failure)
    return found


async def _run_test(
    script: Script, case: Case, arguments: DefaultedArguments, pool: Pool
) -> Warned | None:
    checked = arguments.check(case.arguments)
    if checked.problems:
        if case.fails is not None and any(case.fails in misfit for misfit in checked.problems):
            return None
        return Warned(case.where, f"the test's arguments do not fit: {'; '.join(checked.problems)}")

    async def serve(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if name in case.answers:
            return case.answers[name]
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"the test has no answer for `{name}`")

    try:
        value = await pool.run(script, "run", [checked.values], serve=serve, bounds=_BOUNDS)
    except ScriptFailed as failed:
        if case.fails is not None and case.fails in failed.message:
            return None
        return Warned(case.where, f"the test failed: {failed.message}")
    message = case.wrong(value)
    return Warned(case.where, message) if message else None
