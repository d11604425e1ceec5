"""`read_command_output` and `read_command_output_tail`: parts of a command's output.

A command is found only among those of the same identity; a path is a name for an output, compared
as text and never opened as such. What is read is the very file that was made, or nothing. A result
is no larger than it may be: reading on with `offset` leads to the end, whatever sizes are asked
for.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ferrule.core.calls import ErrorType, encode_json
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool

from .outputs import OutputStream, StreamName
from .policy import CommandOptions, CommandPolicy
from .record import render_record
from .session_commands import CommandHandle, SessionCommands

DEFAULT_LENGTH = 65_536
DEFAULT_TAIL_LENGTH = 12_000
_SPARE_BYTES = 512
"""Bytes of a result that are left for what others add to it."""

_ID = Annotated[str, "The `command_id` of a command's result."]
_HANDLE = Annotated[str, "Or its `handle_id`."]
_PATH = Annotated[str, "Or the path of one of its outputs, as a result named it."]
_STREAM = Annotated[
    Literal["combined", "stdout", "stderr"], "Which output; a path says it already."
]


def make_reader_tools(options: CommandOptions) -> tuple[Tool, ...]:
    """Return both readers, answering in the form of these options."""

    @tool(side_effect="none", risk="safe", polls=True, inline=True)
    async def read_command_output(
        context: Context,
        command_id: _ID = "",
        handle_id: _HANDLE = "",
        path: _PATH = "",
        stream: _STREAM = "combined",
        offset: Annotated[int, "Byte to begin at."] = 0,
        length: Annotated[int, "Bytes to read at the most."] = DEFAULT_LENGTH,
    ) -> Any:
        """Read a part of what a command said: content, bytes_read, total_bytes, eof. Go on at
        offset + bytes_read.
        """
        _check("offset", offset, 0)
        _check("length", length, 1)
        handle, output = _find(context, command_id, handle_id, path, stream)
        return _answer(handle, output, offset, length, context, options)

    @tool(side_effect="none", risk="safe", polls=True, inline=True)
    async def read_command_output_tail(
        context: Context,
        command_id: _ID = "",
        handle_id: _HANDLE = "",
        path: _PATH = "",
        stream: _STREAM = "combined",
        length: Annotated[int, "Bytes to read at the most."] = DEFAULT_TAIL_LENGTH,
    ) -> Any:
        """Read the end of what a command said."""
        _check("length", length, 1)
        handle, output = _find(context, command_id, handle_id, path, stream)
        return _answer(handle, output, None, length, context, options)

    return read_command_output, read_command_output_tail


def _check(name: str, value: int, low: int) -> None:
    if value < low:
        raise RetryCall(f"`{name}` must be at least {low}, found {value}")


def find_command(context: Context, *names: str) -> CommandHandle:
    """Return the command that one of these ids or paths names.

    Raises:
        RetryCall: None or several are given.
        ToolFailed: `not_found` if there is no such command.
    """
    given = [name for name in names if name]
    if len(given) != 1:
        raise RetryCall(
            "name the command once: by `command_id`, `handle_id` or the path of its output"
        )
    return SessionCommands.from_context(context).find(given[0], context.identity)


def _find(
    context: Context, command_id: str, handle_id: str, path: str, stream: StreamName
) -> tuple[CommandHandle, OutputStream]:
    handle = find_command(context, command_id, handle_id, path)
    if path:
        named = next((output for output in handle.streams() if output.path == path), None)
        if named is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`{path[:200]}` is no output of a command; pass ids by their name",
            )
        return handle, named
    return handle, handle.outputs.get(stream)


def _answer(
    handle: CommandHandle,
    output: OutputStream,
    offset: int | None,
    length: int,
    context: Context,
    options: CommandOptions,
) -> Any:
    room = CommandPolicy.from_context(context).result_bytes - _SPARE_BYTES
    length = min(length, room)
    while True:
        record = _make_record(handle, output, offset, length)
        size = len(encode_json(record).encode("utf-8", "replace"))
        if size <= room or length <= 1:
            break
        length = max(1, min(length * 3 // 4, length * room // size))
    return render_record(record, options, lambda: _format(record))


def _make_record(
    handle: CommandHandle, output: OutputStream, offset: int | None, length: int
) -> dict[str, Any]:
    # The end is a place, too: if less of it is shown, it begins later.
    begin = max(0, output.stored_bytes - length) if offset is None else offset
    try:
        piece = output.read(begin, length)
    except OSError:
        raise ToolFailed(
            ErrorType.IO_ERROR,
            f"the output of {handle.command_id} is gone or was replaced; run the command again",
        ) from None
    record: dict[str, Any] = {
        "command_id": handle.command_id,
        "path": output.path,
        "content": piece.content,
        "offset": piece.offset,
        "bytes_read": piece.size,
        "total_bytes": piece.total,
        "eof": handle.has_ended and piece.offset + piece.size >= piece.total,
        "status": handle.status,
    }
    if handle.outputs.incomplete:
        record["output_incomplete"] = handle.outputs.incomplete
    return record


def _format(record: dict[str, Any]) -> str:
    end = record["offset"] + record["bytes_read"]
    rest = "its end" if record["eof"] else f"go on at offset {end}"
    state = f"[bytes {record['offset']} to {end} of {record['total_bytes']}; {rest}]"
    if not record["content"]:
        return state
    return f"{record['content'].removesuffix(chr(10))}\n{state}"
