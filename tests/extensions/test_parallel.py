"""`parallel.*`: calls beside a script, bounded, through the gate, and none that outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from script_runs import PATIENT
from script_sessions import ScriptSession

from ferrule import tool
from ferrule.core.calls import ErrorType
from ferrule.core.events import DirectCall
from ferrule.tools.definition import Tool


class Gates:
    """Tools that wait until a test lets them go on. `most` is how many were in there at once."""

    def __init__(self) -> None:
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.stopped: list[str] = []
        self.inside = self.most = 0
        self._gates: dict[str, asyncio.Event] = {}

    def open(self, *names: str) -> None:
        for name in names:
            self._gates.setdefault(name, asyncio.Event()).set()

    async def until(self, count: int) -> set[str]:
        async with asyncio.timeout(PATIENT):
            return {await self.entered.get() for _ in range(count)}

    @property
    def tool(self) -> Tool:
        @tool(side_effect="none")
        async def pass_through(name: str) -> str:
            """Wait at a gate."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.entered.put_nowait(name)
            try:
                await self._gates.setdefault(name, asyncio.Event()).wait()
            except asyncio.CancelledError:
                self.stopped.append(name)
                raise
            finally:
                self.inside -= 1
            return f"through {name}"

        return pass_through


LAUNCH = "a, b, c = [parallel.launch('pass_through', {'name': n}) for n in 'abc'.elems()]\n"


@pytest.fixture
def gates() -> Gates:
    return Gates()


@pytest.fixture
def begin(script_session: ScriptSession, gates: Gates) -> Callable[[str], asyncio.Task[Any]]:
    """Starts a script as a call, and lets the test go on beside it."""

    def begun(body: str) -> asyncio.Task[Any]:
        session = script_session.open(script_session.tool(body), gates.tool)
        return asyncio.create_task(session.call("mine"))

    return begun


async def test_launched_calls_go_side_by_side_and_come_back_in_the_order_asked_for(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates
) -> None:
    call = begin(LAUNCH + "return [a, [one['result'] for one in parallel.wait_all([c, a, b])]]")
    assert await gates.until(3) == {"a", "b", "c"}
    gates.open("b")
    gates.open("c", "a")
    assert (await call).data == ["async_tool_1", ["through c", "through a", "through b"]]


async def test_the_first_that_is_done_is_given_and_the_others_go_on(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates
) -> None:
    call = begin(
        LAUNCH + "first = parallel.wait_any()['id']\nreturn [first, len(parallel.wait_all())]"
    )
    await gates.until(3)
    gates.open("b")
    await asyncio.sleep(0)
    gates.open("a", "c")
    first, count = (await call).data
    assert first in ("async_tool_1", "async_tool_2", "async_tool_3")
    assert count == 3
    assert gates.stopped == []


async def test_a_race_stops_those_that_lose_it(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates
) -> None:
    call = begin(LAUNCH + "won = parallel.race()\nreturn [won['id'], len(parallel.wait_all())]")
    await gates.until(3)
    gates.open("b")
    assert (await call).data == ["async_tool_2", 1]
    assert sorted(gates.stopped) == ["a", "c"]


async def test_a_call_waits_for_what_it_depends_on(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates
) -> None:
    body = """
a = parallel.launch('pass_through', {'name': 'a'})
b = parallel.launch('pass_through', {'name': 'b'}, depends_on=[a])
return [one['ok'] for one in parallel.wait_all([b])]"""
    call = begin(body)
    assert await gates.until(1) == {"a"}
    gates.open("a")
    assert await gates.until(1) == {"b"}
    gates.open("b")
    assert (await call).data == [True]


async def test_dependents_of_a_failure_fail_and_are_not_made(script_session: ScriptSession) -> None:
    body = """
a = parallel.launch('read_text', {'path': 'nowhere.txt'})
b = parallel.launch('write_file', {'path': 'b.txt', 'content': 'x'}, [a])
c = parallel.launch('write_file', {'path': 'c.txt', 'content': 'x'}, depends_on=b)
d = parallel.launch('stat_path', {'path': 'a.txt'})
return [[one['id'], one['is_error'], one['error_type'], one['error']] for one in parallel.wait_all()]"""
    found = await script_session.value(body)
    assert [one[:3] for one in found] == [
        ["async_tool_1", True, "not_found"],
        ["async_tool_2", True, "cancelled"],
        ["async_tool_3", True, "cancelled"],
        ["async_tool_4", False, "none"],
    ]
    assert found[1][3] == "not made: async_tool_1 (`read_text`) failed"
    assert not (script_session.folder / "b.txt").exists()
    made = [event.call.tool for event in script_session.events() if isinstance(event, DirectCall)]
    assert sorted(made) == ["mine", "read_text", "stat_path"]


async def test_only_so_many_calls_go_on_at_once(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates
) -> None:
    many = 84
    call = begin(
        f"for n in range({many}):\n    parallel.launch('pass_through', "
        f"{{'name': 'n'}})\nreturn len([one for one in parallel.wait_all() if one['ok']])"
    )
    await gates.until(64)
    gates.open("n")
    assert (await call).data == many
    assert gates.most == 64


async def test_a_script_launches_a_bounded_number_of_calls(script_session: ScriptSession) -> None:
    body = "for n in range(1001):\n    parallel.launch('nothing', {})\nreturn 1"
    assert (await script_session.run(body)).error_type is ErrorType.LIMIT


@pytest.mark.parametrize("last", ["return 1", "fail('over')", "return [].x"])
async def test_nothing_that_was_launched_outlives_the_script(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates, last: str
) -> None:
    call = begin(LAUNCH + "sleep(1)\n" + last)
    await call
    assert gates.inside == 0
    assert gates.entered.qsize() == len(gates.stopped)


async def test_a_script_that_is_cancelled_or_out_of_time_takes_its_calls_with_it(
    script_session: ScriptSession, gates: Gates
) -> None:
    body = LAUNCH + "parallel.wait_all()"
    session = script_session.open(
        script_session.tool(body), script_session.tool(body, "timed", timeout_ms="300"), gates.tool
    )
    call = asyncio.create_task(session.call("mine"))
    await gates.until(3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert sorted(gates.stopped) == ["a", "b", "c"]
    assert (await session.call("timed")).error_type is ErrorType.TIMEOUT
    assert sorted(gates.stopped) == ["a", "a", "b", "b", "c", "c"]
    assert gates.inside == 0


async def test_a_launched_call_passes_the_gate(script_session: ScriptSession) -> None:
    script_session.options["deny"] = ["write_file"]
    body = (
        "parallel.launch('write_file', {'path': 'b.txt', 'content': ''})\nreturn "
        "parallel.wait_any()['error_type']"
    )
    assert await script_session.value(body) == "permission_denied"
    assert not (script_session.folder / "b.txt").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("parallel.wait_all(['async_tool_1'])", "no call `async_tool_1`"),
        ("parallel.launch('x', {}, depends_on=['async_tool_9'])", "no call `async_tool_9`"),
        ("parallel.wait_any()", "nothing was launched"),
        ("parallel.race([])", "nothing was launched"),
        ("parallel.launch('x', [1])", "a dictionary of arguments"),
        ("parallel.launch(1)", "the name of a tool"),
    ],
)
async def test_wrong_use_of_parallel_is_said(
    script_session: ScriptSession, body: str, said: str
) -> None:
    result = await script_session.run(body)
    assert not result.success
    assert said in (result.error_message or "")


async def test_a_tool_that_is_a_script_can_be_launched_many_times(
    script_session: ScriptSession,
) -> None:
    body = (
        "for n in range(12):\n    parallel.launch('square', {'n': n})\nreturn [one['result'] for "
        "one in parallel.wait_all()]"
    )
    session = script_session.open(
        script_session.tool(body), script_session.tool("return args['n'] * args['n']", "square")
    )
    result = await session.call("mine")
    assert result.data == [n * n for n in range(12)], result.error_message


# ---- joins


async def test_a_join_gives_all_outcomes_in_the_order_of_the_calls_and_stops_what_is_not_needed(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates
) -> None:
    body = "parallel.wait_all([parallel.launch('read_text', {'path': 'nowhere.txt'})])\n" + LAUNCH
    call = begin(body + "return parallel.join('first_success')")
    await gates.until(3)
    gates.open("b")
    data = (await call).data
    assert [(one["id"], one["tool"], one["ok"], one["error_type"]) for one in data] == [
        ("async_tool_1", "read_text", False, "not_found"),
        ("async_tool_2", "pass_through", False, "cancelled"),
        ("async_tool_3", "pass_through", True, "none"),
        ("async_tool_4", "pass_through", False, "cancelled"),
    ]
    assert data[1]["error"] == "stopped: enough calls succeeded (1)"
    assert data[2] == {
        "id": "async_tool_3",
        "tool": "pass_through",
        "ok": True,
        "is_error": False,
        "result": "through b",
        "error": None,
        "error_type": "none",
        "partial": False,
    }
    assert sorted(gates.stopped) == ["a", "c"]


async def test_a_join_of_two_waits_for_two_and_a_join_of_all_for_all(
    begin: Callable[[str], asyncio.Task[Any]], gates: Gates
) -> None:
    body = LAUNCH + "return [[one['ok'] for one in parallel.join(%s)]"
    call = begin(body % "2" + " for _ in [0]]")
    await gates.until(3)
    gates.open("a", "c")
    assert (await call).data == [[True, False, True]]
    assert gates.stopped == ["b"]
    call = begin(body % "'all', [c, a]" + " for _ in [0]]")
    await gates.until(3)
    assert (await call).data == [[True, True]]


async def test_another_join_is_an_error_that_lists_what_there_is(
    script_session: ScriptSession,
) -> None:
    result = await script_session.open(script_session.tool("parallel.join('any')")).call("mine")
    assert "join = 'any'; use `all`, `first_success`" in (result.error_message or "")
