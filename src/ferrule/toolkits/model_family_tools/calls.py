"""Calls of our own tools from a shape, and their refusals in the names that the model knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ferrule.core.calls import ErrorType, ToolResult, encode_json
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.toolkits.commands.run_command_tool import apply_command_patch
from ferrule.tools.context import Context

T = TypeVar("T")


class ShapeCalls:
    """Makes the calls of one shape.

    Args:
        known_as: Our names of tools and parameters, and the ones that the model knows.
    """

    def __init__(self, known_as: Mapping[str, str]) -> None:
        self._known_as = dict(known_as)

    async def call(self, context: Context, name: str, arguments: Mapping[str, Any]) -> str:
        """Call one of our tools and return its text.

        Raises:
            ToolFailed: What the tool was refused or failed with, in the names the model knows.
        """
        result = await self.result(context, name, arguments)
        if not result.success:
            raise self.failure(name, result)
        text = result.data if isinstance(result.data, str) else encode_json(result.data)
        return "\n".join([text, *result.notes])

    async def result(self, context: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call one of our tools and return its result, whatever it is."""
        if context.call is None:
            raise ToolFailed(
                ErrorType.INTERNAL_ERROR, "this tool needs a session to make its calls"
            )
        return await context.call(name, dict(arguments))

    def failure(self, name: str, result: ToolResult) -> ToolFailed:
        """Return the failure of a call, in the names that the model knows."""
        message = result.error_message or f"`{name}` failed"
        for own, known in self._known_as.items():
            message = message.replace(f"`{own}`", f"`{known}`")
        return ToolFailed(result.error_type, message)

    async def run_command(self, context: Context, arguments: Mapping[str, Any]) -> str:
        """Run a command, or apply the patch that it hands to `apply_patch`.

        A patch is asked about file by file, as the calls that it is made of; the command that
        would carry it is not a question of its own.
        """
        patched = await apply_command_patch(
            arguments["command"], context, str(arguments.get("cwd") or "")
        )
        if patched is not None:
            return patched
        return await self.call(context, "run_command", arguments)


def require(name: str, value: T | None, command: str) -> T:
    """Return a value that a command needs.

    Raises:
        RetryCall: It was not given.
    """
    if value is None:
        raise RetryCall(f"`{command}` needs `{name}`")
    return value
