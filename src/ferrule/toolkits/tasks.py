"""The task list of a session, kept in `Context.memory`: what a model plans and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypedDict

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, Setup
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool

from .examples import with_examples

Status = Literal["pending", "in_progress", "completed"]

MAX_TASKS = 500
"""Most tasks of one session."""
MAX_CONTENT = 2000
"""Most characters of a task."""
_MEMORY_KEY = "ferrule.tasks"


class Task(TypedDict):
    """One task. Ids are `task_1`, `task_2` ... and are never reused."""

    id: str
    status: Status
    content: str


@dataclass(slots=True)
class _TaskList:
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])


def _tasks(context: Context) -> dict[str, Task]:
    task_list = context.memory.setdefault(_MEMORY_KEY, _TaskList())
    assert isinstance(task_list, _TaskList)
    return task_list.tasks


@tool(side_effect="none", risk="safe", parallel=False)
async def add_task(
    content: Annotated[str, "What is to be done, in one line."], context: Context
) -> str:
    """Add a task to the list of what is to be done. Returns its id, such as `task_1`."""
    tasks = _tasks(context)
    content = content.strip()
    if not content:
        raise RetryCall("`content` is empty; say what is to be done")
    if len(content) > MAX_CONTENT:
        raise RetryCall(f"`content` has {len(content)} characters; the most is {MAX_CONTENT}")
    if len(tasks) >= MAX_TASKS:
        raise ToolFailed(
            ErrorType.LIMIT, f"there are {MAX_TASKS} tasks already; complete some of them"
        )
    task = Task(id=f"task_{len(tasks) + 1}", status="pending", content=content)
    tasks[task["id"]] = task
    return task["id"]


@tool(side_effect="none", risk="safe", parallel=False)
async def list_tasks(context: Context) -> list[dict[str, str]]:
    """List all tasks with their ids and states, in the order they were added."""
    # The type is one that needs no pydantic: this tool alone made every run load it.
    return [
        {"id": task["id"], "status": task["status"], "content": task["content"]}
        for task in _tasks(context).values()
    ]


@tool(side_effect="none", risk="safe", parallel=False, idempotent=True)
async def update_task(
    task_id: Annotated[str, "The id, such as `task_1`."],
    status: Annotated[Status, "How far it is."],
    context: Context,
) -> str:
    """Say how far a task is: pending, in_progress or completed."""
    tasks = _tasks(context)
    task = tasks.get(task_id.strip())
    if task is None:
        known = ", ".join(list(tasks)[:20]) or "none yet; add one with `add_task`"
        raise ToolFailed(
            ErrorType.NOT_FOUND, f"there is no task `{task_id[:100]}`; the tasks are: {known}"
        )
    before = task["status"]
    task["status"] = status
    return f"{task['id']} is {status} (was {before}): {task['content']}"


TOOLS: tuple[Tool, ...] = with_examples(add_task, list_tasks, update_task)


@frozen
class Tasks:
    """Tools with which the model keeps a task list."""

    name: ClassVar[str] = "tasks"

    def setup(self, setup: Setup) -> Parts:
        """Return the tools."""
        return Parts(tools=TOOLS)
