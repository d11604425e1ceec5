"""Tools that tell the current time and the working directory."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from ferrule.core.errors import RetryCall
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool

from .examples import with_examples


@tool(side_effect="none", risk="safe", polls=True)
async def get_current_time(
    timezone: Annotated[
        str | None, "An IANA name such as Europe/Berlin; the machine's own if left out."
    ] = None,
) -> str:
    """The current date and time in ISO 8601, with the offset from UTC."""
    if timezone is None:
        return datetime.now().astimezone().isoformat(timespec="seconds")
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RetryCall(
            f"`{timezone[:100]}` is not a time zone known here; use an IANA name such as "
            "`Europe/Berlin` or `UTC`"
        ) from None
    return datetime.now(zone).isoformat(timespec="seconds")


@tool(side_effect="none", risk="safe")
async def get_working_directory(context: Context) -> str:
    """The absolute path of the workspace, which all relative paths start from."""
    return str(context.resource(Workspace).root)


TOOLS: tuple[Tool, ...] = with_examples(get_current_time, get_working_directory)


@frozen
class Clock:
    """Tools that tell the current time and the working directory."""

    name: ClassVar[str] = "clock"

    def setup(self, setup: Setup) -> Parts:
        """Return the tools."""
        return Parts(tools=TOOLS)
