"""The task list of a session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.toolkits import tasks
from ferrule.toolkits.tasks import add_task, list_tasks, update_task
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool


@pytest.fixture
def context() -> Context:
    return Context(Identity("t", "u", "s", "r"), "call_1")


def call(tool: Tool, context: Context, **arguments: Any) -> Any:
    checked = tool.arguments.check(arguments)
    assert not checked.problems, checked.problems
    return asyncio.run(tool.handler(**checked.values, context=context))


def test_tasks_are_added_listed_and_brought_on(context: Context) -> None:
    assert call(list_tasks, context) == []
    assert call(add_task, context, content="Analyze") == "task_1"
    assert call(add_task, context, content="  Design\n") == "task_2"
    said = call(update_task, context, task_id="task_1", status="in_progress")
    assert said == "task_1 is in_progress (was pending): Analyze"
    assert call(list_tasks, context) == [
        {"id": "task_1", "status": "in_progress", "content": "Analyze"},
        {"id": "task_2", "status": "pending", "content": "Design"},
    ]


@pytest.mark.parametrize("content", ["", "  \n", "x" * 2001])
def test_a_task_without_text_or_with_too_much_is_refused(context: Context, content: str) -> None:
    with pytest.raises(ToolFailed) as raised:
        call(add_task, context, content=content)
    assert raised.value.error_type is ErrorType.VALIDATION_FAILED
    assert call(list_tasks, context) == []


def test_an_unknown_task_is_not_found_and_the_known_ones_are_named(context: Context) -> None:
    with pytest.raises(ToolFailed, match="none yet"):
        call(update_task, context, task_id="task_1", status="completed")
    call(add_task, context, content="one")
    with pytest.raises(ToolFailed, match=r"`task_9`; the tasks are: task_1") as raised:
        call(update_task, context, task_id="task_9", status="completed")
    assert raised.value.error_type is ErrorType.NOT_FOUND


def test_a_state_that_does_not_exist_is_refused_by_the_schema() -> None:
    assert update_task.arguments.check({"task_id": "task_1", "status": "done"}).problems


def test_sessions_do_not_share_tasks(context: Context) -> None:
    call(add_task, context, content="mine")
    assert call(list_tasks, Context(Identity("t", "u", "s2", "r"), "call_1")) == []


def test_changing_what_was_listed_changes_nothing(context: Context) -> None:
    call(add_task, context, content="one")
    call(list_tasks, context)[0]["status"] = "completed"
    assert call(list_tasks, context)[0]["status"] == "pending"


def test_the_list_is_bounded(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_TASKS", 2)
    for _ in range(2):
        call(add_task, context, content="x")
    with pytest.raises(ToolFailed) as raised:
        call(add_task, context, content="x")
    assert raised.value.error_type is ErrorType.LIMIT


def test_all_are_safe_and_the_result_fits_its_schema(context: Context) -> None:
    assert {tool.risk for tool in tasks.TOOLS} == {"safe"}
    call(add_task, context, content="one")
    assert list_tasks.output is not None
    assert list_tasks.output.encode(call(list_tasks, context))[1] == []
