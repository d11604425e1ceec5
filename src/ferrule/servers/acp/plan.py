"""The plan an editor shows: the session's task list, read from the results of its tools.

It is built from events and not from the tool's memory, so that a loaded session shows the plan it
had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrule.core.calls import ToolResult
from ferrule.toolkits import tasks
from ferrule.tools.definition import Tool

_STATES = ("pending", "in_progress", "completed")


class Plan:
    """The tasks of one session."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[str, str]] = {}

    def update(
        self, tool: Tool | None, values: Mapping[str, Any], result: ToolResult
    ) -> dict[str, Any] | None:
        """Return the plan as an update if this call changed it."""
        if tool is None or not result.success:
            return None
        if tool.handler is tasks.add_task.handler and isinstance(result.data, str):
            self._tasks[result.data] = (str(values.get("content", "")).strip(), "pending")
        elif tool.handler is tasks.update_task.handler:
            name = str(values.get("task_id", "")).strip()
            status = str(values.get("status", ""))
            if name not in self._tasks or status not in _STATES:
                return None
            self._tasks[name] = (self._tasks[name][0], status)
        else:
            return None
        entries = [
            {"content": content, "priority": "medium", "status": status}
            for content, status in self._tasks.values()
        ]
        return {"sessionUpdate": "plan", "entries": entries}
