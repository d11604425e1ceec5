"""Check a tool file before it is used: its shape, its script, its parameters, its examples.

Only the top level of a script is run for this, in a worker whose built-ins refuse everything. So
checking a file has no effect outside and needs no trust. A file's own tests are run by `runs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.extensions.front_matter import FileWarning, get_field, get_text, parse_document
from ferrule.extensions.starlark.pool import WorkerPool, shared_pool
from ferrule.extensions.starlark.script import Script, ScriptFailed, ScriptLimits
from ferrule.extensions.tool_files.tool_file import (
    ToolCase,
    ToolFile,
    find_understatement,
    parse_tool,
)
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.tools.define import DefaultedArguments

from .script_text import ArgumentUse, ScriptText

_BOUNDS = ScriptLimits(seconds=5.0)
_PLACE = re.compile(r"(?P<file>(?:(?!: )[^\n`])+?):(?P<line>\d+)(?::(?P<column>\d+))?: ")
_BROKEN = ("compile", "depth", "timeout", "memory", "error", "fail")
"""Reasons why a script whose top level failed is wrong.

`builtin` is not one of them: a run may answer the built-in.
"""

Level = Literal["error", "warning"]


@frozen
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


def make_problem(where: str, message: str, hint: str = "", *, level: Level = "error") -> Problem:
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


def convert_error(error: ConfigError, file: str) -> list[Problem]:
    """Convert a parse error, which may list several problems, one per line."""
    lines = [line for line in error.detail.splitlines() if line] or [error.detail]
    placed = [line for line in lines if _PLACE.match(line) or line.startswith(file)]
    if len(placed) < len(lines):
        return [make_problem(file, error.detail.removeprefix(f"{file}: "), error.hint)]
    hint = error.hint if len(lines) == 1 else ""
    return [make_problem(file, line.removeprefix(f"{file}: "), hint) for line in lines]


def convert_warnings(warned: Iterable[FileWarning]) -> list[Problem]:
    """Convert parse warnings to problems."""
    return [make_problem(one.where, one.message, level="warning") for one in warned]


# ---- tools


async def check_tool(data: bytes, file: str, *, pool: WorkerPool | None = None) -> list[Problem]:
    """Return everything that is wrong with a tool file, warnings included.

    `file` is its name as people see it.
    """
    try:
        parsed = parse_tool(data, file)
    except ConfigError as error:
        return convert_error(error, file)
    return await check_parsed(parsed, data, pool=pool)


async def check_parsed(
    tool: ToolFile, data: bytes, *, pool: WorkerPool | None = None
) -> list[Problem]:
    """Check a tool that was already parsed, alone or within another file (`data` is all of it)."""
    node = _node_of(tool, data)
    understatement = find_understatement(node, tool.script)
    # Some warnings of the parser are reported more precisely below.
    warnings = [
        warning
        for warning in tool.warnings
        if warning != understatement and "defines no function `run" not in warning.message
    ]
    found = convert_warnings(warnings)
    if understatement is not None:
        hint = "write `side_effect: external`, or leave it out"
        found.append(make_problem(understatement.where, understatement.message, hint))
    if tool.description == tool.name:
        message = "there is no description: the model sees only the tool's name"
        hint = "say in a sentence what it does"
        found.append(make_problem(node.where, message, hint, level="warning"))
    try:
        arguments = DefaultedArguments(tool.name, dict(tool.schema))
    except ConfigError as error:
        place = get_field(node, "parameters") or node
        return [*found, make_problem(place.where, error.detail, error.hint)]
    found += _check_examples(tool, arguments, node)
    for case in tool.cases:
        misfits = arguments.check(case.arguments).problems
        if case.fails is None and misfits:
            message = f"the test's arguments do not fit: {'; '.join(misfits)}"
            found.append(make_problem(case.where, message))
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
    pool: WorkerPool | None = None,
) -> list[Problem]:
    """Check that a script compiles, defines its function, and names only existing built-ins.

    `pure`: only those built-ins that hooks have.
    """
    found: list[Problem] = []
    failure = await try_compile(script, pool, pure=pure)
    if failure is not None:
        found.append(make_problem(failure.where, failure.message))
    text = ScriptText(script.source)
    entry_problem = text.check_entry_point(function, parameters)
    if entry_problem is not None:
        line, message = entry_problem
        found.append(make_problem(_place_in(script, line), message))
    for line, written, hint in text.find_unknown_builtins():
        found.append(
            make_problem(_place_in(script, line), f"there is no built-in `{written}`", hint)
        )
    return found


def _check_parameters(tool: ToolFile, script: Script, node: Node) -> Iterator[Problem]:
    """Yield problems about parameters that are read but not declared, or never read."""
    use = ScriptText(script.source).trace_argument("run", 0)
    if use is None:
        return
    declared: Mapping[str, Any] = tool.schema.get("properties", {})
    for name, line in use.read.items():
        if name in declared:
            continue
        # Undeclared arguments are accepted unless the file is strict, so a script may test for one.
        optional = not tool.strict and (name not in use.required or name in use.tested)
        hint = suggest_names(name, declared, f"declare it: `{name}: {{ type: string }}`")
        message = f"the script reads `{name}`, which is not a parameter"
        level = "warning" if optional else "error"
        yield make_problem(_place_in(script, line), message, hint, level=level)
    yield from _check_missing(tool, use, script)
    if use.escapes:
        return
    places = (get_field(node, "parameters") or node).pairs or {}
    for name in declared:
        if name not in use.read and name not in use.tested:
            where = places[name][0].where if name in places else node.where
            yield make_problem(
                where, f"the script never reads the parameter `{name}`", level="warning"
            )


def _check_missing(tool: ToolFile, use: ArgumentUse, script: Script) -> Iterator[Problem]:
    """Yield warnings about optional parameters that the script reads as if they were given."""
    required = tool.schema.get("required", ())
    properties = tool.schema.get("properties", {})
    for name, line in use.required.items():
        schema = properties.get(name)
        if schema is None or name in required or "default" in schema:
            continue
        if name in use.tested or name in use.assigned:
            continue
        message = f"`{name}` may be left out, and then this fails"
        hint = f'write `args.get("{name}")`, or make it required or give it a default'
        yield make_problem(_place_in(script, line), message, hint, level="warning")


def _check_examples(tool: ToolFile, arguments: DefaultedArguments, node: Node) -> Iterator[Problem]:
    listed = get_field(node, "examples")
    items = (listed.items if listed is not None else None) or []
    for number, example in enumerate(tool.examples):
        where = items[number].where if number < len(items) else node.where
        for misfit in arguments.check(example["arguments"]).problems:
            yield make_problem(where, f"an example does not fit the parameters: {misfit}")


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
        if item.pairs is not None and get_text(item, "name") == tool.name:
            return item
    return fields


def _place_in(script: Script, line: int) -> str:
    return f"{script.file}:{script.line + line - 1}"


# ---- scripts


async def try_compile(
    script: Script, pool: WorkerPool | None = None, *, pure: bool = False
) -> FileWarning | None:
    """Return why a script cannot be compiled, or None."""
    try:
        await (pool or shared_pool()).run(script, "", limits=_BOUNDS, pure=pure)
    except ScriptFailed as failed:
        if failed.reason in _BROKEN:
            return _make_warning(f"{script.file}:{script.line}", failed.message)
    return None


def _make_warning(where: str, message: str) -> FileWarning:
    """Make a warning, at the place that the message begins with, if any."""
    place = _PLACE.match(message)
    if place is None:
        return FileWarning(where, message)
    return FileWarning(place[0].removesuffix(": "), message[place.end() :])


# ---- tests and examples, without a run


async def find_problems(file: ToolFile, *, pool: WorkerPool | None = None) -> list[FileWarning]:
    """Return what keeps a tool from being used, its tests included, without a run.

    Tests run in a worker with the answers that they give and no others: enough to know whether a
    file that a run makes for itself is consistent. A person's own check is `check_tool`, and `runs`
    for the tests.
    """
    try:
        arguments = DefaultedArguments(file.name, dict(file.schema))
    except ConfigError as error:
        return [FileWarning(file.file, error.detail)]
    found: list[FileWarning] = []
    for example in file.examples:
        for misfit in arguments.check(example["arguments"]).problems:
            found.append(
                FileWarning(file.file, f"an example does not fit the parameters: {misfit}")
            )
    if file.script is None:
        return found
    pool = pool or shared_pool()
    failure = await try_compile(file.script, pool)
    if failure is not None:
        return [*found, failure]
    for case in file.cases:
        failure = await _run_test(file.script, case, arguments, pool)
        if failure is not None:
            found.append(failure)
    return found


async def _run_test(
    script: Script, case: ToolCase, arguments: DefaultedArguments, pool: WorkerPool
) -> FileWarning | None:
    checked = arguments.check(case.arguments)
    if checked.problems:
        if case.fails is not None and any(case.fails in misfit for misfit in checked.problems):
            return None
        return FileWarning(
            case.where, f"the test's arguments do not fit: {'; '.join(checked.problems)}"
        )

    async def serve(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if name in case.answers:
            return case.answers[name]
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"the test has no answer for `{name}`")

    try:
        value = await pool.run(script, "run", [checked.values], serve=serve, limits=_BOUNDS)
    except ScriptFailed as failed:
        if case.fails is not None and case.fails in failed.message:
            return None
        return FileWarning(case.where, f"the test failed: {failed.message}")
    message = case.check_value(value)
    return FileWarning(case.where, message) if message else None
