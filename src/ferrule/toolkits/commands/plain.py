"""`run_command` in its plain form: the built-in one, with few parameters and readable text.

The full form (`full.py`) has all that requirement 001 asks for and returns a record. Both use the
same runner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import COMMAND, READS
from ferrule.tools.result_facts import store_facts

from .policy import MAX_TIMEOUT, CommandOptions, CommandPolicy
from .record import format_output, list_notices, make_result_facts
from .runner import ReadyCommand, plan_request, preview_command, run_ready_command
from .session_commands import CommandHandle

_TAIL_ON_TIMEOUT = 4000
_PLAIN = CommandOptions()


def _request(values: Mapping[str, Any], policy: CommandPolicy) -> dict[str, Any]:
    """Translate the arguments of the plain form into those of the full one."""
    timeout = values.get("timeout")
    seconds = policy.timeout if timeout is None else timeout
    problem = _timeout_problem(seconds)
    if problem:
        raise RetryCall(problem)
    return {
        "command": values["command"],
        "mode": "auto",
        "cwd": values.get("cwd", "."),
        "stdin": values.get("stdin", ""),
        "timeout_ms": round(seconds * 1000),
        "capture": {"merge_stderr": True},
    }


async def _preview(values: Mapping[str, Any], context: Any) -> str:
    """Show the exact command line and where it would run."""
    request, planned, folder = plan_request(
        _request(values, CommandPolicy.from_context(context)), context, _PLAIN
    )
    return preview_command(replace(request, cwd=folder), planned)


def _impossible(values: Mapping[str, Any]) -> list[str]:
    problem = _timeout_problem(values.get("timeout"))
    return [problem] if problem else []


def _timeout_problem(seconds: float | None) -> str:
    if seconds is None or 0.001 <= seconds <= MAX_TIMEOUT:
        return ""
    return f"`timeout` must be from 0.001 to {MAX_TIMEOUT} seconds, found {seconds}"


@tool(
    side_effect="execute",
    risk="high",
    timeout=MAX_TIMEOUT + 60,
    parallel=False,
    preview=_preview,
    impossible=_impossible,
    inline=True,
)
async def run_command(
    command: Annotated[
        str | list[str],
        COMMAND,
        "A command line for bash: `cd web && npm test 2>&1 | tail -20`; or a program and its "
        'arguments as a list, which no shell reads: ["grep", "-n", "a|b", "x.py"].',
    ],
    context: Context,
    timeout: Annotated[
        float | None, "Seconds after which it is ended, up to 3600 (default 300)."
    ] = None,
    cwd: Annotated[str, READS, "The folder of the workspace to start in."] = ".",
    stdin: Annotated[str, "Text for its standard input."] = "",
) -> str:
    """Run a command in the workspace and return its output, followed by its exit status if that is
    not 0.

    It gets no secrets from the environment, has no terminal, and all that it starts ends with it.
    """
    policy = CommandPolicy.from_context(context)
    values = {"command": command, "timeout": timeout, "cwd": cwd, "stdin": stdin}
    request, planned, folder = plan_request(_request(values, policy), context, _PLAIN)
    handle = await run_ready_command(
        ReadyCommand(request, planned, folder, {}), context, keep=policy.kept_bytes
    )
    try:
        return _answer(handle, context)
    finally:
        # The files have the output; a session of many commands must not hold all of it in memory.
        handle.outputs.shrink(_PLAIN.max_inline_bytes)


def _answer(handle: CommandHandle, context: Context) -> str:
    text = handle.outputs.combined.text()
    store_facts(context, make_result_facts(handle, text))
    if handle.status != "timed_out":
        return format_output(handle, text)
    tail = text[-_TAIL_ON_TIMEOUT:]
    size = handle.outputs.combined.size
    output = (
        f"output until then ({size} bytes), its end:\n{tail}" if tail else "there was no output"
    )
    raise ToolFailed(
        ErrorType.TIMEOUT,
        f"`{handle.plan.format_command_line()[:200]}` was ended after {handle.timeout_seconds:g} "
        f"s, and all it "
        "had started; what it did "
        f"until then stands. {' '.join([*list_notices(handle, text), output])}",
    )
