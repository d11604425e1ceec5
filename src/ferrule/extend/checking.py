"""What can be known of a tool file before it is used: does its script compile, do its examples fit, do its tests pass?

A script is evaluated in a worker with built-ins that refuse everything, so checking a file does nothing outside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.tools.define import SchemaArguments

from .front_matter import Warned
from .starlark.pool import Pool, shared
from .starlark.script import Bounds, Script, ScriptFailed
from .tool_file import Case, ToolFile

_BOUNDS = Bounds(seconds=5.0)
_PLACE = re.compile(r"(.+?:\d+): ")


async def problems(file: ToolFile, *, pool: Pool | None = None) -> list[Warned]:
    """Everything that is wrong with a tool file besides its warnings; empty for a good one."""
    try:
        arguments = SchemaArguments(file.name, dict(file.schema))
    except ConfigError as error:
        return [Warned(file.file, error.detail)]
    found = [
        Warned(file.file, f"an example does not fit the parameters: {problem}")
        for example in file.examples
        for problem in arguments.check(example["arguments"]).problems
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


async def compiled(script: Script, pool: Pool | None = None) -> Warned | None:
    """Why a script cannot be read, or None."""
    try:
        await (pool or shared()).run(script, "", bounds=_BOUNDS)
    except ScriptFailed as failed:
        if failed.reason in ("compile", "depth", "timeout", "memory", "error", "fail"):
            return _placed(f"{script.file}:{script.line}", failed.message)
    return None


def _placed(where: str, message: str) -> Warned:
    """With the place that the message begins with, if it does."""
    found = _PLACE.match(message)
    return Warned(found[1], message[found.end() :]) if found else Warned(where, message)


async def _tried(script: Script, case: Case, arguments: SchemaArguments, pool: Pool) -> Warned | None:
    checked = arguments.check(case.arguments)
    if checked.problems:
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
    if case.fails is not None:
        return Warned(case.where, f"the test should have failed with `{case.fails}`, and returned {value!r}")
    if value != case.returns:
        return Warned(case.where, f"the test returned {value!r}, not {case.returns!r}")
    return None
