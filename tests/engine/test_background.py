"""Tasks of a session: whose they are, how they end, and what is known of them. Tools with scripts:
`tests/extensions/test_async_tools.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.engine.background import TOPIC, BackgroundTasks, background_tasks
from ferrule.tools.context import Context
from task_outcomes import list_task_outcomes

MAX_FINISHED = 200

WHO = Identity("t", "u", "s", "r")
PATIENT = 60


class Notes(list[Noticed]):
    """What was noted, as the journal would keep it."""

    def __call__(self, topic: str, text: str) -> None:
        self.append(Noticed(topic, text))


async def _value() -> Any:
    return {"n": 1}


async def _never() -> Any:
    await asyncio.Event().wait()


async def _fail() -> Any:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (_value, {"status": "done", "result": {"n": 1}}),
        (
            _fail,
            {
                "status": "failed",
                "error_type": "internal_error",
                "error": "ZeroDivisionError: by zero",
            },
        ),
    ],
)
async def test_a_task_says_what_came_of_it(
    work: Callable[[], Awaitable[Any]], expected: dict[str, Any]
) -> None:
    notes, told = Notes(), []
    tasks = BackgroundTasks(WHO, notes)
    task_id = tasks.start(work, name="job", tell=told.append)
    assert tasks.status(task_id) == {"task_id": task_id, "name": "job", "status": "running"}
    found = await tasks.wait(task_id, PATIENT)
    assert found == {"task_id": task_id, "name": "job", **expected}
    assert list_task_outcomes(notes) == {task_id: expected["status"]}
    assert told == []  # Somebody waited for it.


async def test_a_value_that_is_no_json_is_a_failure() -> None:
    tasks = BackgroundTasks(WHO)

    async def work() -> Any:
        return object()

    found = await tasks.wait(tasks.start(work, name="job"), PATIENT)
    assert (found["status"], found["error_type"]) == ("failed", "internal_error")


async def test_tasks_of_a_run_end_with_it_and_others_go_on() -> None:
    notes = Notes()
    tasks = BackgroundTasks(WHO, notes)
    ours = tasks.start(_never, name="of run", of_run=True)
    other = tasks.start(_never, name="of session")
    await tasks.cancel_run_tasks()
    assert (tasks.status(ours)["status"], tasks.status(other)["status"]) == ("cancelled", "running")
    await tasks.close()
    assert list_task_outcomes(notes) == {ours: "cancelled", other: "cancelled"}


async def test_a_session_that_goes_on_after_it_was_closed_is_closed_again() -> None:
    closers: list[Callable[[], Awaitable[None]]] = []
    context = Context(WHO, "c", on_close=closers.append)
    for _ in range(2):
        task_id = background_tasks(context).start(_never, name="job")
        background_tasks(context)
        (closer,) = closers
        closers.clear()
        await closer()
        assert background_tasks(context).status(task_id)["status"] == "cancelled"
        await closers.pop()()


def test_a_task_whose_event_loop_is_over_is_over() -> None:
    notes = Notes()
    tasks = BackgroundTasks(WHO, notes)

    async def begin() -> str:
        task_id = tasks.start(_never, name="job")
        await asyncio.sleep(0)
        return task_id

    task_id = asyncio.run(begin())
    assert tasks.status(task_id)["status"] == "cancelled"
    asyncio.run(tasks.close())
    assert list_task_outcomes(notes) == {task_id: "cancelled"}


async def test_an_id_of_another_session_is_not_found_and_a_lost_one_is_unknown() -> None:
    here, there = BackgroundTasks(WHO), BackgroundTasks(Identity("t", "u", "other", "r"))
    task_id = here.start(_value, name="job")
    with pytest.raises(ToolFailed, match="no task"):
        there.status(task_id)
    after_a_crash = BackgroundTasks(Identity("t", "u", "s", "another run"))
    assert after_a_crash.status(task_id)["status"] == "unknown"
    assert (await after_a_crash.wait(task_id, PATIENT))["status"] == "unknown"
    assert (await after_a_crash.cancel(task_id))["status"] == "unknown"
    await here.close()


async def test_an_id_that_is_not_found_is_answered_with_the_last_eight_that_are() -> None:
    tasks = BackgroundTasks(WHO)
    started = [tasks.start(_value, name="job") for _ in range(10)]
    with pytest.raises(ToolFailed) as found:
        tasks.status("task_?")
    assert str(found.value).endswith(f"there are: {', '.join(started[2:])}")
    await tasks.close()


@given(st.text(), st.text(alphabet="task_0123456789abcdef", max_size=30))
def test_an_id_that_nobody_gave_is_not_found(text: str, likely: str) -> None:
    tasks = BackgroundTasks(WHO)
    for wrong in (text, likely, f"task_{likely}"):
        with pytest.raises(ToolFailed):
            tasks.status(wrong)


async def test_finished_tasks_are_forgotten_oldest_first_and_are_unknown_then() -> None:
    tasks = BackgroundTasks(WHO)
    started: list[str] = []
    for _ in range(MAX_FINISHED + 3):
        started.append(tasks.start(_value, name="job"))
        await tasks.wait(started[-1], PATIENT)
    tasks.start(_value, name="job")
    known = [tasks.status(task_id)["status"] for task_id in started]
    assert known == ["unknown"] * 3 + ["done"] * MAX_FINISHED
    await tasks.close()


_NAMES = st.sampled_from(["task_" + sign * 20 for sign in "0af"])
_TEXTS = st.builds(
    "{} (`{}`) {}".format,
    _NAMES,
    st.sampled_from(["slow", "x y"]),
    st.sampled_from(["started", "done", "failed: done", "cancelled", "odd"]),
)


@given(st.lists(st.one_of(_TEXTS, st.text())))
def test_a_journal_with_anything_in_it_says_how_its_tasks_stand(texts: list[str]) -> None:
    found = list_task_outcomes(Noticed(TOPIC, text) for text in texts)
    assert set(found.values()) <= {"unknown", "done", "failed", "cancelled"}
    assert list_task_outcomes(Noticed("other", text) for text in texts) == {}
