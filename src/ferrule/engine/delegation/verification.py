"""Check a sub-agent's work with a command or a tool of the delegating session.

    "pytest -q"                                       a command, run by `run_command`
    "run_tests"                                       a tool that takes no arguments
    {"tool": "run_tests", "arguments": {"quick": true}}

The check passes through the session's pipeline and gate. The work passes if the call succeeds and
its value reports no failure: not `false`, no `ok`, `passed` or `success` that is false, no exit
code but 0. A check that is not allowed or cannot be made is an error, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from ferrule.core.calls import ErrorType, ToolResult, encode_json
from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool

Check = str | Mapping[str, Any]
Call = Callable[[str, dict[str, Any]], Awaitable[ToolResult]]
"""Runs a tool through the pipeline."""

COMMAND_TOOL = "run_command"
MAX_REPORT = 4000
"""Maximum characters of a report."""
_STATUS = compile_lazily(r"^\[exit status (?:(-?\d+)|unknown)\]$|^\[ended by ", re.MULTILINE)
_FAILURE_KEYS = ("ok", "passed", "success")
_CHECK_ERRORS = (ErrorType.PERMISSION_DENIED, ErrorType.NOT_FOUND, ErrorType.CANCELLED)


@frozen
class Verdict:
    """Whether the work passed, and the check's report."""

    passed: bool
    report: str


def plan_check(
    check: Check, catalog: Catalog, unseen: Callable[[str, Tool], str] = lambda name, tool: ""
) -> tuple[str, dict[str, Any]]:
    """Return tool and arguments of a check.

    `unseen` explains why the caller may not call a tool, or returns "".

    Raises ToolFailed (`validation_failed`) if this session cannot make the check.
    """
    if isinstance(check, str):
        if check in catalog:
            tool, arguments = check, dict[str, Any]()
        else:
            tool, arguments = COMMAND_TOOL, {"command": check}
    else:
        tool, arguments = check.get("tool"), check.get("arguments", {})
        if (
            not isinstance(tool, str)
            or not isinstance(arguments, dict)
            or set(check) - {"tool", "arguments"}
        ):
            raise _check_error(
                f"found {encode_json(dict(check))[:200]}; a check is {{tool, arguments}} or a "
                f"command"
            )
    found = catalog.get(tool)
    if found is None:
        raise _check_error(f"there is no tool `{tool}` in this session")
    why = unseen(tool, found)
    if why:
        raise _check_error(why)
    return tool, cast("dict[str, Any]", arguments)


async def run_check(check: Check, catalog: Catalog, call: Call) -> Verdict:
    """Run the check. Raises ToolFailed if it cannot be made."""
    tool, arguments = plan_check(check, catalog)
    result = await call(tool, arguments)
    if result.error_type in _CHECK_ERRORS:
        raise ToolFailed(
            result.error_type, f"the work could not be checked: {result.error_message}"
        )
    if not result.success:
        return Verdict(False, (result.error_message or "")[:MAX_REPORT])
    text = result.data if isinstance(result.data, str) else encode_json(result.data)
    return Verdict(not _reports_failure(result.data), text[-MAX_REPORT:])


def _reports_failure(value: Any) -> bool:
    if value is False:
        return True
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        if any(record.get(key) is False for key in _FAILURE_KEYS):
            return True
        return record.get("exit_code") not in (None, 0)
    found = list(_STATUS.finditer(value)) if isinstance(value, str) else []
    return bool(found) and found[-1][1] != "0"


def _check_error(why: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, f"the work could not be checked: {why}")
