"""Tools for commands in the background: their state, waiting for one, ending one."""

from __future__ import annotations

from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool

from .policy import CommandOptions
from .readers import find_command
from .record import format_output, make_record, render_record
from .runner import make_display_limits
from .session_commands import CommandHandle, SessionCommands

WAIT_MS = 60_000
MAX_WAIT_MS = 600_000

_ID = Annotated[str, "The `handle_id` or `command_id` of a command."]


def make_lifecycle_tools(options: CommandOptions) -> tuple[Tool, ...]:
    """Return `poll_command`, `wait_command` and `kill_command`, answering as these options say."""

    @tool(side_effect="none", risk="safe", polls=True)
    async def poll_command(handle_id: _ID, context: Context) -> Any:
        """Say how a command in the background stands, with its output so far. Does not wait."""
        return _answer(find_command(context, handle_id), context, options)

    @tool(side_effect="none", risk="safe", polls=True, timeout=MAX_WAIT_MS / 1000 + 60)
    async def wait_command(
        handle_id: _ID,
        context: Context,
        timeout_ms: Annotated[int, "Milliseconds to wait at the most, up to 600000."] = WAIT_MS,
    ) -> Any:
        """Wait until a command in the background has ended, and say what came of it."""
        if not 0 <= timeout_ms <= MAX_WAIT_MS:
            raise RetryCall(f"`timeout_ms` must be from 0 to {MAX_WAIT_MS}, found {timeout_ms}")
        handle = find_command(context, handle_id)
        await handle.wait(timeout_ms / 1000)
        return _answer(handle, context, options)

    @tool(side_effect="execute", risk="safe", polls=True, idempotent=True)
    async def kill_command(handle_id: _ID, context: Context) -> Any:
        """End a command in the background and all that it started. `cancelled` is false if there
        was nothing to end.
        """
        try:
            handle = find_command(context, handle_id)
        except ToolFailed as error:
            if error.error_type is not ErrorType.NOT_FOUND:
                raise
            return render_record({"cancelled": False, "reason": error.message}, options)
        cancelled = await SessionCommands.from_context(context).kill(handle)
        record = {"cancelled": cancelled, **_make_record(handle, context, options)}
        outcome = "ended" if cancelled else "was over"
        return render_record(
            record, options, lambda: f"[{outcome}] {_format_output(handle, options)}"
        )

    return poll_command, wait_command, kill_command


def _answer(handle: CommandHandle, context: Context, options: CommandOptions) -> Any:
    handle.unanswered_reports = 0
    return render_record(
        _make_record(handle, context, options), options, lambda: _format_output(handle, options)
    )


def _make_record(
    handle: CommandHandle, context: Context, options: CommandOptions
) -> dict[str, Any]:
    return make_record(handle, make_display_limits(context, options, options.max_inline_bytes))


def _format_output(handle: CommandHandle, options: CommandOptions) -> str:
    return format_output(handle, handle.outputs.combined.text(options.max_inline_bytes))
