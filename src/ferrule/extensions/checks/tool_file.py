"""What can be known of a tool file before it is used: its shape, its script, its parameters, its
examples.

Nothing is run for this but the top level of a script, in a worker whose built-ins refuse
everything, so checking a file does nothing outside and needs nobody's trust. A file's own tests are
another matter: `runs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.extensions.front_matter import Warned, field, parse_document, text_of
from ferrule.extensions.starlark.pool import Pool, shared
from ferrule.extensions.starlark.script import Bounds, Script, ScriptFailed
from ferrule.extensions.tool_files.tool_file import Case, ToolFile, parse_tool, understated
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.tools.define import DefaultedArguments

from .scripts import Looked, Text

_BOUNDS = Bounds(seconds=5.0)
_PLACE = re.compile(r"(?P<file>(?:(?!: )[^\n`])+?):(?P<line>\d+)(?::(?P<column>\d+))?: ")
_BROKEN = ("compile", "depth", "timeout", "memory", "error", "fail")
"""Reasons why a script whose top level came to nothing is wrong; `builtin` is not: it may be
answered in a run.
"""

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file. `line` and `column` count from 1; 0 where there is none. An
    `error` keeps it from being used.
    """

    level: Level
    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    @property
    def where(self) -> str:
        """`file:line:column`, as far as it is known."""
        return ":".join(
            [self.file, *(str(number) for number in (self.line, self.column) if number)]
        )

    def __str__(self) -> str:
        return f"{self.where}: {self.level}: {self.message}" + (
            f"; {self.hint}" if self.hint else ""
        )


def problem(where: str, message: str, hint: str = "", *, level: Level = "error") -> Problem:
    """A problem at `file:line:column` or `file:line` or `file`; a place that the message itself
    begins with is the nearer one.
    """
    if found := _PLACE.match(message):
        where, message = found[0].removesuffix(": "), message[found.end() :]
    found = _PLACE.fullmatch(f"{where}: ")
    if found is None:
        return Problem(level, where, 0, 0, message, hint)
    return Problem(
        level, found["file"], int(found["line"]), int(found["column"] or 0), message, hint
    )


def problems_of(error: ConfigError, file: str) -> list[Problem]:
    """An error of reading, which may name several problems, a line each."""
    lines = [line for line in error.detail.splitlines() if line] or [error.detail]
    placed = [line for line in lines if _PLACE.match(line) or line.startswith(file)]
    if len(placed) < len(lines):
        return [problem(file, error.detail.removeprefix(f"{file}: "), error.hint)]
    hint = error.hint if len(lines) == 1 else ""
    return [problem(file, line.removeprefix(f"{file}: "), hint) for line in lines]


def warnings_of(warned: Iterable[Warned]) -> list[Problem]:
    """Warnings of reading, as problems."""
    return [problem(one.where, one.message, level="warning") for one in warned]


# ---- tools


async def check_tool(data: bytes, file: str, *, pool: Pool | None = None) -> list[Problem]:
    """Everything that is wrong with the bytes of a tool file, warnings too; `file` is its name as
    people see it.
    """
    try:
        parsed = parse_tool(data, file)
    except ConfigError as error:
        return problems_of(error, file)
    return await check_parsed(parsed, data, pool=pool)


async def check_parsed(tool: ToolFile, data: bytes, *, pool: Pool | None = None) -> list[Problem]:
    """The same for a tool that was read already, alone or within another file (`data` is the whole
    of it).
    """
    node = _node_of(tool, data)
    less = understated(node, tool.script)
    # Said below, more exactly.
    known = [
        one
        for one in tool.warnings
        if one != less and "defines no function `run" not in one.message
    ]
    found = warnings_of(known)
    if less is not None:
        found.append(
            problem(less.where, less.message, "write `side_effect: external`, or leave it out")
        )
    if tool.description == tool.name:
        said = "there is no description: the model sees only the tool's name"
        found.append(problem(node.where, said, "say in a sentence what it does", level="warning"))
    try:
        arguments = DefaultedArguments(tool.name, dict(tool.schema))
    except ConfigError as error:
        return [
            *found,
            problem((field(node, "parameters") or node).where, error.detail, error.hint),
        ]
    found += _examples(tool, arguments, node)
    found += [
        problem(case.where, f"the test's arguments do not fit: {'; '.join(wrong)}")
        for case in tool.cases
        if case.fails is None and (wrong := arguments.check(case.arguments).problems)
    ]
    if tool.script is not None:
        found += await check_script(tool.script, "run", ("args",), pool=pool)
        found += _parameters(tool, tool.script, node)
    return found


async def check_script(
    script: Script,
    function: str,
    parameters: Sequence[str],
    *,
    pure: bool = False,
    pool: Pool | None = None,
) -> list[Problem]:
    """Whether it compiles, has the function that is called, and names built-ins that there are.
    `pure`: those of hooks only.
    """
    found: list[Problem] = []
    wrong = await compiled(script, pool, pure=pure)
    if wrong is not None:
        found.append(problem(wrong.where, wrong.message))
    text = Text(script.source)
    if (entry := text.entry(function, parameters)) is not None:
        found.append(problem(_at(script, entry[0]), entry[1]))
    for line, written, near in text.strangers():
        hint = f"did you mean `{near}`?" if near else ""
        found.append(problem(_at(script, line), f"there is no built-in `{written}`", hint))
    return found


def _parameters(tool: ToolFile, script: Script, node: Node) -> Iterator[Problem]:
    """Parameters that the script reads and nobody declared, and those that it never reads."""
    looked = Text(script.source).looks("run", 0)
    if looked is None:
        return
    declared: Mapping[str, Any] = tool.schema.get("properties", {})
    for name, line in looked.read.items():
        if name in declared:
            continue
        # What nobody declared passes, so asking whether it came is allowed; it can never come where
        # the file is strict.
        optional = not tool.strict and (name not in looked.needed or name in looked.asked)
        near = get_close_matches(name, declared, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"declare it: `{name}: {{ type: string }}`"
        said = f"the script reads `{name}`, which is no parameter"
        yield problem(_at(script, line), said, hint, level="warning" if optional else "error")
    yield from _unguarded(tool, looked, script)
    places = (field(node, "parameters") or node).pairs or {}
    for name in declared:
        if name not in looked.read and name not in looked.asked and not looked.hidden:
            where = places[name][0].where if name in places else node.where
            yield problem(where, f"the script never reads the parameter `{name}`", level="warning")


def _unguarded(tool: ToolFile, looked: Looked, script: Script) -> Iterator[Problem]:
    required = tool.schema.get("required", ())
    for name, line in looked.needed.items():
        schema = tool.schema.get("properties", {}).get(name)
        if (
            schema is None
            or name in required
            or "default" in schema
            or name in looked.asked | looked.made
        ):
            continue
        said = f"`{name}` may be left out, and then this fails"
        hint = f'write `args.get("{name}")`, or make it required or give it a default'
        yield problem(_at(script, line), said, hint, level="warning")


def _examples(tool: ToolFile, arguments: DefaultedArguments, node: Node) -> Iterator[Problem]:
    listed = field(node, "examples")
    places = [item.where for item in (listed.items or [])] if listed is not None else []
    for number, example in enumerate(tool.examples):
        where = places[number] if number < len(places) else node.where
        for wrong in arguments.check(example["arguments"]).problems:
            yield problem(where, f"an example does not fit the parameters: {wrong}")


def _node_of(tool: ToolFile, data: bytes) -> Node:
    """The mapping that a tool was read from: the front matter, or its entry in a list of tools."""
    whole = (
        parse_yaml(data, tool.file)
        if tool.file.endswith((".yaml", ".yml"))
        else parse_document(data, tool.file).fields
    )
    listed = field(whole, "tools")
    for item in (listed.items or []) if listed is not None else []:
        if item.pairs is not None and text_of(item, "name") == tool.name:
            return item
    return whole


def _at(script: Script, line: int) -> str:
    return f"{script.file}:{script.line + line - 1}"


# ---- scripts


async def compiled(
    script: Script, pool: Pool | None = None, *, pure: bool = False
) -> Warned | None:
    """Why a script cannot be read, or None."""
    try:
        await (pool or shared()).run(script, "", bounds=_BOUNDS, pure=pure)
    except ScriptFailed as failed:
        if failed.reason in _BROKEN:
            return _placed(f"{script.file}:{script.line}", failed.message)
    return None


def _placed(where: str, message: str) -> Warned:
    """With the place that the message begins with, if it does."""
    found = _PLACE.match(message)
    return (
        Warned(found[0].removesuffix(": "), message[found.end() :])
        if found
        else Warned(where, message)
    )


# ---- what a file says of itself, tried without a run


async def problems(file: ToolFile, *, pool: Pool | None = None) -> list[Warned]:
    """What keeps a tool from being used, its tests included; empty for a good one.

    Tests are tried in a worker, with the answers that they give and no others: enough to know
    whether a file that a run makes for itself holds what it says. A person's own check is
    `check_tool`, and `runs` for the tests.
    """
    try:
        arguments = DefaultedArguments(file.name, dict(file.schema))
    except ConfigError as error:
        return [Warned(file.file, error.detail)]
    found = [
        Warned(file.file, f"an example does not fit the parameters: {wrong}")
        for example in file.examples
        for wrong in arguments.check(example["arguments"]).problems
    ]
    if file.script is None:
        return found
    pool = pool or shared()
    if (wrong := await compiled(file.script, pool)) is not None:
        return [*found, wrong]
    for case in file.cases:
        if (wrong := await _tried(file.script, case, arguments, pool)) is not None:
            found.append(wrong)
    return found


async def _tried(
    script: Script, case: Case, arguments: DefaultedArguments, pool: Pool
) -> Warned | None:
    checked = arguments.check(case.arguments)
    if checked.problems:
        if case.fails is not None and any(case.fails in wrong for wrong in checked.problems):
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
    wrong = case.wrong(value)
    return Warned(case.where, wrong) if wrong else None
