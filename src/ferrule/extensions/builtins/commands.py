"""`exec.run`: calls `run_command`, in either of its forms, and returns its outcome as a dictionary.

The text of a command's result says how it ended. The same comes a second time as facts
(`tools.result_facts`), which no output can imitate. If a tool of that name has no facts, because it
is not Ferrule's, its last line `[exit status N]` is believed.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from ferrule.core.calls import ErrorType, ToolResult, parse_json
from ferrule.core.errors import ToolFailed
from ferrule.tools.result_facts import take_facts

from .scope import Scope, tool_error, usage_error

_LAST_STATUS = re.compile(r"(?:\A|\n)\[exit status (-?\d+)\]\Z")
_SHELL_SYNTAX = re.compile(r"[|<>;\n]|&&")
_FORM_KEY = "extend.run_command"
_LONGEST = 3_600_000
"""Milliseconds that `run_command` allows at most (`toolkits.commands.policy.MAX_TIMEOUT`)."""


async def run(
    scope: Scope, program: str, args: Sequence[str] = (), timeout_ms: int = 30_000, dir: str = "."
) -> dict[str, Any]:
    if not isinstance(program, str) or not isinstance(args, (list, tuple)):  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
        raise usage_error("`exec.run` takes a program and a list of arguments")
    if _SHELL_SYNTAX.search(program):
        raise usage_error(
            f"`exec.run`: `{program}` is a line for a shell; give a program and a list of arguments"
        )
    if type(timeout_ms) not in (int, float) or not 0 <= timeout_ms <= _LONGEST:
        raise usage_error(
            f"`exec.run`: timeout_ms = {timeout_ms!r}: milliseconds from 1 to {_LONGEST}, or "
            "0 for the longest"
        )
    longest = math.ceil(timeout_ms) or _LONGEST
    started = time.monotonic()
    result = await _call_tool(scope, [program, *map(str, args)], longest, dir)
    took = int((time.monotonic() - started) * 1000)
    facts = take_facts(scope.context, result.call_id)
    if result.error_type is ErrorType.TIMEOUT:
        return _outcome("", result.error_message or "", -1, took, timed_out=True)
    if not result.success:
        raise tool_error(result, "run_command")
    record = _record(result, facts)
    if record is not None:
        return _record_outcome(record, took)
    return _text_outcome(result, facts, took)


async def _call_tool(scope: Scope, argv: list[str], timeout_ms: int, folder: str) -> ToolResult:
    """Call `run_command`. One form takes seconds, the other (requirement 001's) milliseconds."""
    memory = scope.context.memory
    form = memory.get(_FORM_KEY, "seconds")
    is_whole = timeout_ms % 1000 == 0
    timeouts: dict[str, dict[str, Any]] = {
        "seconds": {"timeout": timeout_ms // 1000 if is_whole else timeout_ms / 1000},
        "milliseconds": {"timeout_ms": timeout_ms},
    }
    arguments = {"command": argv, "cwd": folder or "."}
    result = await scope.call_shipped_tool("run_command", arguments | timeouts[form])
    if form == "seconds" and _is_wrong_form(result):
        # Refused before anything happened, so it is the other form, for the rest of the session.
        memory[_FORM_KEY] = "milliseconds"
        result = await scope.call_shipped_tool("run_command", arguments | timeouts["milliseconds"])
    return result


def _is_wrong_form(result: ToolResult) -> bool:
    if result.error_type is not ErrorType.VALIDATION_FAILED:
        return False
    return "`timeout` is not an argument" in (result.error_message or "")


def _record(result: ToolResult, facts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the record of the full form, which may be given as JSON text, or None."""
    data = result.data
    if isinstance(data, str) and facts is not None and facts.get("form") == "json":
        if result.partial:
            raise ToolFailed(
                ErrorType.LIMIT, "`exec.run`: its record was larger than a result may be"
            )
        # If it is not JSON, a hook has replaced it by a text.
        with suppress(ValueError):
            data = parse_json(data)
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _record_outcome(record: Mapping[str, Any], took: int) -> dict[str, Any]:
    if record.get("status") == "blocked":
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, str(record.get("reason", "the command was not run"))
        )
    code = record.get("exit_code")
    return _outcome(
        str(record.get("stdout", "")),
        str(record.get("stderr", "")),
        -1 if code is None else code,
        took,
        timed_out=bool(record.get("timed_out")),
    )


def _text_outcome(result: ToolResult, facts: Mapping[str, Any] | None, took: int) -> dict[str, Any]:
    text = str(result.data)
    if facts is None:
        code = 0
        status = _LAST_STATUS.search(text)
        if status:
            code = int(status[1])
            text = text[: status.start()]
        return _outcome(text, "", code, took, truncated=result.partial)
    is_whole = not result.partial and text.endswith(facts["after"])
    text = text.removeprefix(facts["before"])
    if is_whole:
        text = text.removesuffix(facts["after"]) + facts["ending"]
    return _outcome(
        text, "", facts["exit_code"], took, timed_out=facts["timed_out"], truncated=result.partial
    )


def _outcome(
    out: str, err: str, code: int, took: int, *, timed_out: bool = False, truncated: bool = False
) -> dict[str, Any]:
    return {
        "ok": code == 0 and not timed_out,
        "stdout": out,
        "stderr": err,
        "exit_code": code,
        "duration_ms": took,
        "timed_out": timed_out,
        "truncated": truncated,
    }


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {"exec.run": run}
