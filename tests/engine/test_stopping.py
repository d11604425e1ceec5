"""A stop is a level: whatever a handler makes of it, nothing is asked or called afterwards.

Handlers, hooks, approvers and models that swallow cancellation in every way; ways of stopping a
run; and where in the run it happens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from ferrule import (
    Agent,
    ConfigError,
    Context,
    Host,
    LimitReached,
    Limits,
    Permissions,
    RunCancelled,
    Scripted,
    Storage,
    tool,
)
from ferrule.core.commands import FinishRun
from ferrule.core.events import Noticed, RunFinished
from ferrule.core.messages import AssistantMessage, ToolMessage
from ferrule.engine.driver import DriverExtension
from ferrule.engine.session import Session
from ferrule.engine.stopping import LEFT_BEHIND
from ferrule.models.scripted import Step, calls, says
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.definition import Tool

BOUND = 30
"""Seconds after which a test that waits for an event has failed."""
SHORT = 0.05
"""`Host.stop_seconds` of these tests: what never ends is left behind after it."""
FOREVER = 3600


class Scene:
    """What handlers of one run share: who has begun, what has happened, and the end of the test."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.effects: list[str] = []
        self.begins = 0
        self.over = threading.Event()
        self.loop = asyncio.get_running_loop()
        self.never = self.loop.create_future()
        self.journal = SqliteJournal(":memory:")

    def begin(self) -> None:
        self.begins += 1
        self.loop.call_soon_threadsafe(self.begun.set)


Stubborn = Callable[[Scene, Context], Awaitable[str]]


async def swallow_once(scene: Scene, context: Context) -> str:
    with suppress(BaseException):
        await asyncio.sleep(FOREVER)
    return "done"


async def swallow_always(scene: Scene, context: Context) -> str:
    while not scene.over.is_set():
        with suppress(BaseException):
            await asyncio.shield(scene.never)
    return "done"


async def sleep_in_a_loop(scene: Scene, context: Context) -> str:
    while not scene.over.is_set():
        with suppress(BaseException):
            await asyncio.sleep(0.001)
    return "done"


async def wait_in_finally(scene: Scene, context: Context) -> str:
    try:
        await asyncio.sleep(FOREVER)
    finally:
        await asyncio.sleep(0)
    return "done"


async def return_in_finally(scene: Scene, context: Context) -> str:
    # As a `return` in `finally`, which Python 3.14 warns of.
    with suppress(BaseException):
        await asyncio.sleep(FOREVER)
    return "done"


async def shield_itself(scene: Scene, context: Context) -> str:
    work = asyncio.ensure_future(asyncio.sleep(0.01))
    try:
        await asyncio.shield(scene.never)
    except asyncio.CancelledError:
        await work
    return "done"


async def shield_for_ever(scene: Scene, context: Context) -> str:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.shield(scene.never)


async def wait_for_a_thread(scene: Scene, context: Context) -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().run_in_executor(None, scene.over.wait, 0.2)
    return "done"


async def uncancel(scene: Scene, context: Context) -> str:
    try:
        await asyncio.sleep(FOREVER)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        while task.cancelling():
            task.uncancel()
    return "done"


async def raise_what_is_retried(scene: Scene, context: Context) -> str:
    try:
        await asyncio.sleep(FOREVER)
    except asyncio.CancelledError:
        raise ConnectionRefusedError("closed") from None
    return "done"


async def raise_another_error(scene: Scene, context: Context) -> str:
    try:
        await asyncio.sleep(FOREVER)
    except asyncio.CancelledError:
        raise ValueError("interrupted") from None
    return "done"


async def exit_instead(scene: Scene, context: Context) -> str:
    try:
        await asyncio.sleep(FOREVER)
    except asyncio.CancelledError:
        raise SystemExit(3) from None
    return "done"


async def call_another_tool(scene: Scene, context: Context) -> str:
    assert context.call is not None
    with suppress(BaseException):
        await asyncio.sleep(FOREVER)
    for _ in range(3):
        with suppress(BaseException):
            await context.call("effect", {"what": "nested"})
    return "done"


async def run_another_agent(scene: Scene, context: Context) -> str:
    with suppress(BaseException):
        await asyncio.sleep(FOREVER)
    for _ in range(3):
        with suppress(BaseException):
            await inner_agent(scene).run("go")
    return "done"


async def run_another_agent_on_a_loop_of_its_own(scene: Scene, context: Context) -> str:
    with suppress(BaseException):
        await asyncio.sleep(FOREVER)
    for _ in range(3):
        with suppress(BaseException):
            inner_agent(scene).run_sync("go")
    return "done"


async def stay_in_another_agent(scene: Scene, context: Context) -> str:
    async def wait(history: object) -> Step:
        with suppress(BaseException):
            await asyncio.sleep(FOREVER)
        return calls(("effect", {"what": "inner"}))

    with suppress(BaseException):
        await inner_agent(scene, wait).run("go")
    return "done"


STUBBORN: dict[str, Stubborn] = {
    handler.__name__: handler
    for handler in (
        swallow_once,
        swallow_always,
        sleep_in_a_loop,
        wait_in_finally,
        return_in_finally,
        shield_itself,
        shield_for_ever,
        wait_for_a_thread,
        uncancel,
        raise_what_is_retried,
        raise_another_error,
        exit_instead,
        call_another_tool,
        run_another_agent,
        run_another_agent_on_a_loop_of_its_own,
        stay_in_another_agent,
    )
}
NEVER_END = ("swallow_always", "sleep_in_a_loop", "shield_for_ever")


def make_effect(scene: Scene) -> Tool:
    @tool(side_effect="external", risk="safe")
    async def effect(what: str) -> str:
        """Do what a stopped run must not do any more."""
        scene.effects.append(what)
        return "happened"

    return effect


def inner_agent(scene: Scene, *first: Any) -> Agent:
    script = [*first, calls(("effect", {"what": "inner"})), says("end")]
    return Agent(Scripted(script), [make_effect(scene)])


def stubborn_tool(scene: Scene, handler: Stubborn) -> Tool:
    @tool(side_effect="read")
    async def stubborn(context: Context) -> str:
        """Does not let itself be stopped."""
        scene.begin()
        return await handler(scene, context)

    return stubborn


def blocking_tool(scene: Scene) -> Tool:
    @tool(side_effect="read")
    def stubborn(context: Context) -> str:
        """Blocks its thread, until it is told that it was stopped."""
        scene.begin()
        while not context.is_stopped():
            scene.over.wait(0.001)
        return "done"

    return stubborn


def hanging_tool(scene: Scene) -> Tool:
    @tool(side_effect="read")
    def stubborn() -> str:
        """Blocks its thread for as long as the test takes."""
        scene.begin()
        scene.over.wait(BOUND)
        return "done"

    return stubborn


# ---- where in the run it happens

STUBBORN_CALL = ("stubborn", dict[str, Any]())
EFFECT_CALL = ("effect", {"what": "later"})
POSITIONS: dict[str, list[Step]] = {
    "first call": [calls(STUBBORN_CALL), calls(EFFECT_CALL)],
    "after another turn": [calls(("look", {})), calls(STUBBORN_CALL), calls(EFFECT_CALL)],
    "before a call of the same answer": [calls(STUBBORN_CALL, EFFECT_CALL)],
    "beside a call that runs": [calls(STUBBORN_CALL, ("look", {})), calls(EFFECT_CALL)],
}


# ---- ways of stopping


async def by_session(session: Session[Any], work: asyncio.Task[Any]) -> None:
    assert session.cancel()
    with pytest.raises(RunCancelled):
        await work


async def by_another_thread(session: Session[Any], work: asyncio.Task[Any]) -> None:
    thread = threading.Thread(target=session.cancel)
    thread.start()
    with pytest.raises(RunCancelled):
        await work
    thread.join()


async def by_task(session: Session[Any], work: asyncio.Task[Any]) -> None:
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def by_task_twice(session: Session[Any], work: asyncio.Task[Any]) -> None:
    work.cancel()
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def by_wait_for(session: Session[Any], work: asyncio.Task[Any]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work, 0.001)


async def by_session_and_task(session: Session[Any], work: asyncio.Task[Any]) -> None:
    session.cancel()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def by_limit(session: Session[Any], work: asyncio.Task[Any]) -> None:
    with pytest.raises(LimitReached, match="max_seconds"):
        await work


WAYS = (
    by_session,
    by_another_thread,
    by_task,
    by_task_twice,
    by_wait_for,
    by_session_and_task,
    by_limit,
)
Way = Callable[[Session[Any], asyncio.Task[Any]], Awaitable[None]]


class World:
    """An agent whose run is stopped, and what is checked afterwards."""

    def __init__(
        self, scene: Scene, script: list[Any], *tools: Tool, way: Way, **more: Any
    ) -> None:
        @tool(side_effect="read")
        async def look() -> str:
            """Look."""
            return "seen"

        self.scene = scene
        self.journal = scene.journal
        self.agent = Agent(
            Scripted([*script, says("end"), says("end"), says("end")]),
            [*tools, look, make_effect(scene)],
            storage=Storage(journal=self.journal),
            limits=Limits(max_seconds=0.1 if way is by_limit else None),
            host=Host(stop_seconds=SHORT),
            **more,
        )
        self.session = self.agent.session()

    async def stop(self, way: Way) -> None:
        """Run until the handler has begun, then stop the run."""
        work = asyncio.ensure_future(self.session.run("go"))
        async with asyncio.timeout(BOUND):
            await self.scene.begun.wait()
            await way(self.session, work)

    async def check(self, *, later: str = "not run: ") -> list[str]:
        """Check what must hold after every stop. Return the errors of the calls that have one.

        `later` is what the error of a call says that came after the stop.
        """
        assert self.scene.effects == []
        assert self.scene.begins == 1
        assert not self.session.is_running
        await self.session.close()
        self.journal.verify(self.session.id)
        kinds = [type(record.event) for record in self.journal.records(self.session.id)]
        assert kinds.count(RunFinished) == 1
        resumed = self.agent.resume(self.session.id)
        assert await resumed.resume() is None
        answered = [one.call_id for one in resumed.history if isinstance(one, ToolMessage)]
        called = [
            call.id
            for one in resumed.history
            if isinstance(one, AssistantMessage)
            for call in one.calls
        ]
        assert answered == called
        results = self.session.results()
        errors = [result.error_message or "" for result in results]
        effects = [result.error_message or "" for result in results if result.tool == "effect"]
        assert all(error.startswith(later) for error in effects)
        self.agent.change_model(Scripted([says("again")]))
        assert (await resumed.run("again")).text == "again"
        await resumed.close()
        assert self.scene.effects == []
        return errors

    def notices(self) -> list[str]:
        """Return the notices about what was left behind."""
        events = [record.event for record in self.journal.records(self.session.id)]
        return [one.text for one in events if isinstance(one, Noticed) and one.topic == LEFT_BEHIND]


@asynccontextmanager
async def playing() -> AsyncIterator[Scene]:
    scene = Scene()
    try:
        yield scene
    finally:
        scene.over.set()
        scene.journal.close()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", STUBBORN)
async def test_nothing_happens_after_a_stop_whatever_a_handler_makes_of_it(
    name: str, way: Way
) -> None:
    for script in POSITIONS.values():
        async with playing() as scene:
            world = World(scene, script, stubborn_tool(scene, STUBBORN[name]), way=way)
            await world.stop(way)
            errors = await world.check()
            if name in NEVER_END:
                assert any("`stubborn`" in text for text in world.notices())
                left = [text for text in errors if "did not let itself be stopped" in text]
                assert left and all("outcome unknown" in text for text in left)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("make", [blocking_tool, hanging_tool], ids=lambda make: make.__name__)
async def test_nothing_happens_after_a_stop_while_a_handler_blocks_a_thread(
    make: Callable[[Scene], Tool], way: Way
) -> None:
    for script in POSITIONS.values():
        async with playing() as scene:
            world = World(scene, script, make(scene), way=way)
            await world.stop(way)
            errors = await world.check()
            hangs = make is hanging_tool
            assert any("did not let itself be stopped" in text for text in errors) is hangs


class StubbornHook:
    """Swallows that the call was stopped, and lets it run."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    async def before(self, tool: Tool, values: Mapping[str, Any], context: Context) -> None:
        self.scene.begin()
        with suppress(BaseException):
            await asyncio.sleep(FOREVER)

    async def after(self, tool: Tool, result: object, context: Context) -> None: ...


class StubbornApprover:
    """Swallows that the run was stopped, and says yes; or never ends."""

    def __init__(self, scene: Scene, *, ends: bool) -> None:
        self.scene = scene
        self.ends = ends

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.scene.begin()
        while True:
            with suppress(BaseException):
                await asyncio.sleep(FOREVER)
            if self.ends or self.scene.over.is_set():
                return ApprovalAnswer("once")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_call_does_not_run_after_a_stop_that_a_hook_swallowed(way: Way) -> None:
    async with playing() as scene:
        world = World(
            scene, [calls(EFFECT_CALL)], way=way, plugins=[Parts(hooks=[StubbornHook(scene)])]
        )
        await world.stop(way)
        scene.over.set()
        world.agent.hooks = ()
        await world.check(later="stopped")


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_call_does_not_run_after_a_stop_that_an_approver_swallowed(
    way: Way, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.engine.driver.RUN_SECONDS", SHORT)
    async with playing() as scene:
        approver = StubbornApprover(scene, ends=ends)
        permissions = Permissions(ask=["effect"], approver=approver)
        world = World(scene, [calls(EFFECT_CALL)], way=way, permissions=permissions)
        await world.stop(way)
        await world.check()
        assert bool(world.notices()) is not ends


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_call_of_an_answer_runs_that_came_after_a_stop(way: Way) -> None:
    async with playing() as scene:

        async def answer_late(history: object) -> Step:
            scene.begin()
            with suppress(BaseException):
                await asyncio.sleep(FOREVER)
            return calls(EFFECT_CALL)

        world = World(scene, [answer_late], way=way)
        await world.stop(way)
        await world.check()


async def test_a_direct_call_that_swallows_its_cancellation_is_not_tried_again() -> None:
    async with playing() as scene:
        attempts: list[int] = []

        @tool(side_effect="read")
        async def stubborn() -> str:
            """Fails in a way that is tried again."""
            attempts.append(1)
            scene.begin()
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                raise ConnectionRefusedError("closed") from None
            return "done"

        session = Agent(Scripted([]), [stubborn]).session()
        work = asyncio.ensure_future(session.call("stubborn"))
        await scene.begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert attempts == [1]
        await session.close()


async def test_a_handler_that_outlives_its_timeout_is_named_and_the_run_goes_on() -> None:
    async with playing() as scene:

        @tool(side_effect="read", timeout=0.01)
        async def stubborn() -> str:
            """Never ends."""
            return await swallow_always(scene, Context(agent_identity, ""))

        agent = Agent(
            Scripted([calls(STUBBORN_CALL), says("end")]),
            [stubborn],
            host=Host(stop_seconds=SHORT),
        )
        session = agent.session()
        agent_identity = session.identity
        ran = await session.run("go")
        assert ran.text == "end"
        assert ran.results[0].error_type == "timeout"
        message = ran.results[0].error_message or ""
        assert "no answer within 0.01 s" in message
        assert "did not let itself be stopped" in message and "outcome unknown" in message
        await session.close()


class GoesOn(DriverExtension):
    """Continues a run once, however it ended."""

    async def after_turns(self, finish: FinishRun, continuations: int, *, last: bool) -> str:
        return "" if continuations else "Go on."


async def test_a_run_that_is_continued_after_a_limit_works_again() -> None:
    async with playing() as scene:
        world = World(
            scene,
            [calls(STUBBORN_CALL), calls(EFFECT_CALL)],
            stubborn_tool(scene, swallow_once),
            way=by_limit,
        )
        world.session.driver.add_extension(GoesOn)
        assert (await world.session.run("go")).text == "end"
        assert scene.effects == ["later"]
        await world.session.close()


async def test_what_a_left_behind_handler_still_wants_to_call_is_refused() -> None:
    async with playing() as scene:
        refused = asyncio.Event()

        async def call_for_ever(scene: Scene, context: Context) -> str:
            await swallow_always(scene, context)
            assert context.call is not None
            try:
                await context.call("effect", {"what": "late"})
            except asyncio.CancelledError:
                refused.set()
            return "done"

        world = World(
            scene, POSITIONS["first call"], stubborn_tool(scene, call_for_ever), way=by_session
        )
        await world.stop(by_session)
        scene.over.set()
        scene.never.cancel()
        await refused.wait()
        await world.check()


def test_a_program_ends_though_a_handler_never_does() -> None:
    """`asyncio.run` waits at its end for every task that it knows."""
    scenes: list[Scene] = []

    async def main() -> None:
        scene = Scene()
        scenes.append(scene)
        world = World(
            scene, POSITIONS["first call"], stubborn_tool(scene, swallow_always), way=by_session
        )
        await world.stop(by_session)

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    thread.join(BOUND)
    assert not thread.is_alive()
    scenes[0].over.set()


async def test_a_left_behind_handler_starts_no_other_agent() -> None:
    async with playing() as scene:
        ended = asyncio.Event()

        async def run_late(scene: Scene, context: Context) -> str:
            await swallow_always(scene, context)
            with suppress(BaseException):
                await inner_agent(scene).run("go")
            ended.set()
            return "done"

        world = World(
            scene, POSITIONS["first call"], stubborn_tool(scene, run_late), way=by_session
        )
        await world.stop(by_session)
        scene.over.set()
        # It sleeps for an hour; what wakes it is one more cancellation.
        scene.never.cancel()
        await ended.wait()
        await world.check()


async def test_a_tool_may_start_what_outlives_its_run() -> None:
    """A consumer that one call begins serves other runs; the stop of that run is not theirs."""
    async with playing() as scene:
        served: list[str] = []
        asked: asyncio.Queue[str] = asyncio.Queue()
        background: list[asyncio.Task[None]] = []

        async def serve() -> None:
            while True:
                served.append((await Agent(Scripted([says(await asked.get())])).run("x")).text)
                asked.task_done()

        async def start_a_server(scene: Scene, context: Context) -> str:
            background.append(asyncio.ensure_future(serve()))
            return await swallow_once(scene, context)

        world = World(
            scene, POSITIONS["first call"], stubborn_tool(scene, start_a_server), way=by_session
        )
        await world.stop(by_session)
        asked.put_nowait("still there")
        await asked.join()
        assert served == ["still there"]
        background[0].cancel()
        await world.check()


def test_without_an_event_loop_of_asyncio_the_error_names_the_way() -> None:
    work = Agent(Scripted([says("x")])).run("go")
    with pytest.raises(ConfigError, match="asyncio") as caught:
        work.send(None)
    assert "trio" in caught.value.hint
    work.close()


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_a_bound_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="stop_seconds"):
        Host(stop_seconds=seconds)
