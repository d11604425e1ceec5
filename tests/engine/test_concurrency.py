"""Many runs at one time over one catalog and one agent: nothing of one is seen in another, and
stopping one stops one.

And the calls of one round: reads together, writes in their order, `parallel=False` alone, joined as
the run says.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest

from ferrule import (
    READS,
    WRITES,
    Agent,
    Catalog,
    ConfigError,
    Context,
    ErrorType,
    Host,
    Permissions,
    Scripted,
    Storage,
    tool,
)
from ferrule.core.calls import ToolResult
from ferrule.core.events import EVERYTHING, Cancelled, Noticed, RunFinished, ToolAnswered
from ferrule.core.messages import Message, ToolMessage, UserMessage
from ferrule.core.notices import PERSON_SOURCE
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.engine.live_events import Progress
from ferrule.models.scripted import Script, Step, calls, says
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.plugins import Parts
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import RunArtifacts
from ferrule.storage.journal.sqlite import SqliteJournal
from grouped_options import grouped

BOUND = 30
"""Seconds after which a test that waits for an event has failed."""
RUNS = 128


def asked_for(history: Sequence[Message]) -> int:
    """The number in the question of a run."""
    first = history[0]
    assert isinstance(first, UserMessage)
    return int(first.text.split()[-1])


def rounds(*steps: Callable[[int], Step]) -> Script:
    """A model that gives each run its own answers: by the run's number, and by how many answers it
    had.
    """

    def step(history: Sequence[Message]) -> Step:
        answers = sum(type(message).__name__ == "AssistantMessage" for message in history)
        return steps[answers](asked_for(history))

    return step


class Gathering:
    """`await arrive()` returns once so many have come: they are surely under way at the same
    time.
    """

    def __init__(self, most: int) -> None:
        self.most, self.count, self.everybody = most, 0, asyncio.Event()

    async def arrive(self) -> None:
        self.count += 1
        if self.count == self.most:
            self.everybody.set()
        async with asyncio.timeout(BOUND):
            await self.everybody.wait()


# ---- many runs


@pytest.mark.proves("concurrency.worked-example")
async def test_128_runs_of_different_people_over_one_catalog_keep_results_journals_and_artifacts_apart(
    tmp_path: Path,
) -> None:
    gathering = Gathering(RUNS)

    @tool(side_effect="read")
    async def mine(context: Context, number: int, large: str) -> str:
        """Everything that could be mixed up, in one answer that is kept as an artifact."""
        context.memory["number"] = number
        context.progress(f"progress {number}")
        context.note("mine", f"note {number}")
        await gathering.arrive()
        who = context.identity
        assert context.call is not None
        nested = await context.call("double", {"number": number})
        seen = {
            "who": [who.tenant, who.user, who.session],
            "memory": context.memory["number"],
            "resource": context.resource(Belongs).to,
            "nested": nested.data,
        }
        return json.dumps(seen) + "\n" + large

    @tool(side_effect="none")
    def double(context: Context, number: int) -> list[Any]:
        """In a thread."""
        return [number * 2, context.identity.user]

    catalog = Catalog([mine, double])
    store = RunArtifacts(FileArtifactStore(tmp_path / "artifacts"), 8192)
    refs: dict[int, str] = {}

    def read_again(number: int) -> Step:
        return calls(("artifact_fetch", {"artifact": refs[number], "max_bytes": 600}))

    def answer_next(history: Sequence[Message]) -> Step:
        number = asked_for(history)
        last = history[-1]
        if isinstance(last, UserMessage):
            return calls(("mine", {"number": number, "large": f"{number} " * 6000}))
        assert isinstance(last, ToolMessage)
        if number not in refs:
            refs[number] = json.loads(last.text.splitlines()[0])["artifact"]
            return read_again(number)
        return says(f"answer {number}")

    model = Scripted([answer_next] * (3 * RUNS))
    with SqliteJournal(tmp_path / "journal.db") as journal:

        async def one(number: int) -> None:
            agent = Agent(
                model,
                catalog,
                storage=Storage(
                    journal=journal, artifacts=store, tenant=f"t{number % 2}", user=f"u{number}"
                ),
                plugins=[Parts(resources=[Belongs(number)])],
            )
            session = agent.session()
            shown: list[str] = []
            session.observe(
                lambda item: shown.append(item.text) if isinstance(item, Progress) else None
            )
            ran = await session.run(f"question {number}")
            await session.close()
            assert ran.text == f"answer {number}"
            fetched = ran.results[1].data
            seen = json.loads(fetched["content"].splitlines()[0])
            assert seen == {
                "who": [f"t{number % 2}", f"u{number}", ran.session],
                "memory": number,
                "resource": number,
                "nested": [number * 2, f"u{number}"],
            }
            assert shown == [f"progress {number}"]
            events = [record.event for record in journal.records(ran.session)]
            assert [e.text for e in events if isinstance(e, Noticed) and e.topic == "mine"] == [
                f"note {number}"
            ]
            owners = {(record.tenant, record.user) for record in journal.records(ran.session)}
            assert owners == {(f"t{number % 2}", f"u{number}")}
            journal.verify(ran.session)

        await asyncio.gather(*(one(number) for number in range(RUNS)))
    assert len(set(refs.values())) == RUNS


class Belongs:
    """A resource of one run."""

    def __init__(self, to: int) -> None:
        self.to = to


async def test_128_runs_of_one_agent_whose_handlers_block_go_on_at_the_same_time() -> None:
    barrier = threading.Barrier(RUNS)
    local = threading.local()

    @tool(side_effect="read")
    def block(context: Context, number: int) -> list[Any]:
        """Blocks its thread until all are there."""
        local.number = number
        barrier.wait(BOUND)
        return [local.number, context.identity.session]

    model = Scripted(
        [rounds(lambda n: calls(("block", {"number": n})), lambda n: says(f"{n}"))] * (2 * RUNS)
    )
    with SqliteJournal(":memory:") as journal:
        agent = Agent(model, [block], storage=Storage(journal=journal))

        async def one(number: int) -> None:
            ran = await agent.run(f"question {number}")
            assert (ran.text, ran.results[0].data) == (f"{number}", [number, ran.session])

        await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(RUNS))), BOUND)


def test_one_agent_serves_many_threads_each_with_a_loop_of_its_own(tmp_path: Path) -> None:
    @tool(side_effect="none")
    async def whose(context: Context, number: int) -> list[Any]:
        """Whose run this is."""
        await asyncio.sleep(0)
        return [number, context.identity.session, threading.get_ident()]

    lock = threading.Lock()
    script = rounds(lambda n: calls(("whose", {"number": n})), lambda n: says(f"{n}"))
    wrong: list[str] = []

    def guarded(history: Sequence[Message]) -> Step:
        with lock:
            return script(history)  # type: ignore[operator, return-value]

    with SqliteJournal(tmp_path / "journal.db") as journal:
        agent = Agent(Scripted([guarded] * 256), [whose], storage=Storage(journal=journal))

        def several(begin: int) -> None:
            async def all_of_them() -> None:
                numbers = range(begin, begin + 16)
                for number, ran in zip(
                    numbers,
                    await asyncio.gather(*(agent.run(f"go {n}") for n in numbers)),
                    strict=True,
                ):
                    if (ran.text, ran.results[0].data) != (
                        f"{number}",
                        [number, ran.session, threading.get_ident()],
                    ):
                        wrong.append(f"{number}: {ran}")

            asyncio.run(all_of_them())

        threads = [threading.Thread(target=several, args=(16 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        assert wrong == [] and not any(thread.is_alive() for thread in threads)
        assert len(list(journal.sessions())) == RUNS


@pytest.mark.proves("concurrency.cancel-one", "concurrency.worked-example")
async def test_cancelling_one_of_128_runs_touches_no_other() -> None:
    gathering, opened = Gathering(RUNS), asyncio.Event()
    stopped: list[int] = []

    @tool(side_effect="read", timeout=BOUND)
    async def wait(number: int) -> int:
        """Wait for the gate."""
        try:
            await gathering.arrive()
            await opened.wait()
        except asyncio.CancelledError:
            stopped.append(number)
            raise
        return number

    model = Scripted(
        [rounds(lambda n: calls(("wait", {"number": n})), lambda n: says(f"{n}"))] * (2 * RUNS)
    )
    with SqliteJournal(":memory:") as journal:
        agent = Agent(model, [wait], storage=Storage(journal=journal))
        sessions = [agent.session() for _ in range(RUNS)]
        runs = [asyncio.ensure_future(s.run(f"question {n}")) for n, s in enumerate(sessions)]
        victim = 77
        await asyncio.wait_for(gathering.everybody.wait(), BOUND)
        runs[victim].cancel()
        await asyncio.wait([runs[victim]], timeout=BOUND)
        opened.set()
        ends = await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), BOUND)
        assert isinstance(ends.pop(victim), asyncio.CancelledError) and stopped == [victim]
        assert [end.results[0].data for end in ends if not isinstance(end, BaseException)] == [
            n for n in range(RUNS) if n != victim
        ]
        finishes = {
            n: [e.event.stop for e in journal.records(s.id) if isinstance(e.event, RunFinished)]
            for n, s in enumerate(sessions)
        }
        assert finishes.pop(victim) == ["cancelled"] and set(map(tuple, finishes.values())) == {
            ("done",)
        }
        cancelled = [
            s.id
            for s in sessions
            if any(isinstance(e.event, Cancelled) for e in journal.records(s.id))
        ]
        assert cancelled == [sessions[victim].id]


# ---- the calls of one round


@pytest.mark.proves("parallel.reads-together", "parallel.writes-in-order")
async def test_reads_of_a_file_wait_for_the_write_before_them_and_others_do_not() -> None:
    order: list[str] = []
    gathering = Gathering(2)

    @tool(side_effect="read")
    async def look(path: Annotated[str, READS], alone: bool = False) -> str:
        """Look."""
        if not alone:
            await gathering.arrive()
        order.append(f"read {path}")
        return path

    @tool(side_effect="write")
    async def change(path: Annotated[str, WRITES]) -> str:
        """Change."""
        order.append(f"begin {path}")
        await gathering.arrive()
        order.append(f"end {path}")
        return path

    # The read of `b` and the write of `a` need each other to go on; the read of `a` must come after
    # the write.
    made = [
        ("change", {"path": "a"}),
        ("look", {"path": "a", "alone": True}),
        ("look", {"path": "b"}),
    ]
    ran = await Agent(
        Scripted([calls(*made), says("ok")]),
        [look, change],
        storage=Storage(journal=SqliteJournal(":memory:")),
        permissions=Permissions(allow=["change"]),
    ).run("go")
    assert [r.data for r in ran.results] == ["a", "a", "b"]
    assert order.index("end a") < order.index("read a") and order[0] == "begin a"


async def test_a_tool_that_is_not_parallel_is_alone_in_its_round_even_if_it_only_reads() -> None:
    inside = 0
    seen: list[int] = []

    async def enter() -> None:
        nonlocal inside
        inside += 1
        await asyncio.sleep(0)
        seen.append(inside)
        inside -= 1

    @tool(side_effect="read", parallel=False)
    async def alone(n: int) -> str:
        """Alone."""
        await enter()
        return "alone"

    @tool(side_effect="none")
    async def any_time(n: int) -> str:
        """Any time."""
        await enter()
        return "any time"

    order = ("any_time", "alone", "alone", "any_time", "alone")
    made = [(name, {"n": n}) for n, name in enumerate(order)]
    ran = await Agent(Scripted([calls(*made), says("ok")]), [alone, any_time]).run("go")
    assert [r.data for r in ran.results] == ["any time", "alone", "alone", "any time", "alone"]
    assert seen == [1, 1, 1, 1, 1]


# ---- joins


WHY = "enough calls of this answer succeeded (1)"


class Branches:
    """A tool whose calls fail, succeed or hang, as their argument says; a call that hangs is
    stopped or fails the test.
    """

    def __init__(self, side_effect: str = "read") -> None:
        self.began: list[str] = []
        self.stopped: list[str] = []
        self.hanging = asyncio.Event()

        @tool(side_effect=side_effect, timeout=BOUND, max_attempts=1)
        async def branch(does: str) -> str:
            """One branch."""
            self.began.append(does)
            if does == "hang":
                try:
                    self.hanging.set()
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.stopped.append(does)
                    raise
            if does == "fail":
                raise OSError("broken")
            if does == "succeed late":
                await self.hanging.wait()
            return does

        self.tool = branch

    async def run(self, *does: str, join: str | int, **options: Any) -> tuple[ToolResult, ...]:
        with SqliteJournal(":memory:") as journal:
            model = Scripted([calls(*(("branch", {"does": one}) for one in does)), says("ok")])
            agent = Agent(model, [self.tool], **grouped(journal=journal, **options))
            ran = await asyncio.wait_for(agent.run("go", join=join), BOUND)
            kept = {r.event.result.call_id: r.event.result for r in journal.records(ran.session)
                    if isinstance(r.event, ToolAnswered)}  # fmt: skip
            # Each call's one result is in the journal, and the model reads them in the order of its
            # calls.
            assert [kept[result.call_id] for result in ran.results] == list(ran.results)
            read = [m for m in model.histories[-1] if isinstance(m, ToolMessage)]
            assert [m.call_id for m in read] == [result.call_id for result in ran.results]
            return ran.results


def ends(results: Sequence[ToolResult]) -> list[str]:
    return [str(result.data) if result.success else str(result.error_type) for result in results]


@pytest.mark.proves("join.worked-example", "join.all")
async def test_of_three_branches_one_of_which_fails_all_gives_two_results_and_one_error_in_call_order() -> (
    None
):
    branches = Branches()
    results = await branches.run("one", "fail", "three", join="all")
    assert ends(results) == ["one", "io_error", "three"]


@pytest.mark.proves("join.worked-example", "join.first-success")
async def test_of_three_branches_one_of_which_fails_the_first_success_cancels_the_rest() -> None:
    branches = Branches()
    results = await branches.run("hang", "fail", "succeed late", join="first_success")
    assert ends(results) == ["cancelled", "io_error", "succeed late"]
    assert branches.stopped == ["hang"] and results[0].error_message == f"stopped: {WHY}"


async def test_a_number_of_successes_ends_the_rest() -> None:
    branches = Branches()
    results = await branches.run("hang", "one", "two", "fail", join=2)
    assert ends(results) == ["cancelled", "one", "two", "io_error"] and branches.stopped == ["hang"]


async def test_effects_that_come_after_the_first_success_do_not_happen() -> None:
    branches = Branches("external")
    results = await branches.run("fail", "two", "three", join="first_success", allow=["branch"])
    assert ends(results) == ["io_error", "two", "cancelled"]
    assert branches.began == ["fail", "two"] and results[2].error_message == f"not run: {WHY}"


@pytest.mark.proves("join.first-success")
async def test_a_handler_in_a_thread_is_not_waited_for_and_what_it_may_have_done_is_said() -> None:
    hanging, opened, left = threading.Event(), threading.Event(), threading.Event()

    @tool(side_effect="write", timeout=BOUND)
    def slow(path: Annotated[str, WRITES]) -> str:
        """Blocks."""
        hanging.set()
        opened.wait(BOUND)
        left.set()
        return path

    @tool(side_effect="none")
    def quick() -> str:
        """Answers once the other is under way."""
        hanging.wait(BOUND)
        return "quick"

    agent = Agent(
        Scripted([calls(("slow", {"path": "a"}), ("quick", {})), says("ok")]), [slow, quick],
        storage=Storage(journal=SqliteJournal(":memory:")), permissions=Permissions(allow=["slow"]), run_options={"join": "first_success"},
    )  # fmt: skip
    ran = await asyncio.wait_for(agent.run("go"), BOUND)
    assert not left.is_set()
    opened.set()
    assert ends(ran.results) == ["cancelled", "quick"]
    assert (ran.results[0].error_message or "").startswith(
        f"stopped: {WHY}; it ran: outcome unknown"
    )


class Asked:
    """A person who never answers, and whose question can be taken back."""

    def __init__(self) -> None:
        self.asked, self.taken_back = asyncio.Event(), False

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.taken_back = True
            raise
        raise AssertionError("unreachable")


async def test_a_question_to_a_person_is_taken_back_when_nobody_needs_its_call_any_more() -> None:
    person = Asked()

    @tool(side_effect="external")
    def send() -> str:
        """Send."""
        return "sent"

    @tool(side_effect="none")
    async def look() -> str:
        """Look, while the person is being asked."""
        await asyncio.wait_for(person.asked.wait(), BOUND)
        return "found"

    agent = Agent(
        Scripted([calls(("send", {}), ("look", {})), says("ok")]), [send, look],
        storage=Storage(journal=SqliteJournal(":memory:")), permissions=Permissions(approver=person),
    )  # fmt: skip
    ran = await asyncio.wait_for(agent.run("go", join="first_success"), BOUND)
    assert person.taken_back and ends(ran.results) == ["cancelled", "found"]
    assert ran.results[0].error_message == f"not run: {WHY}"


async def test_a_join_that_cannot_be_meant_is_refused_before_anything_runs() -> None:
    model = Scripted([])
    with pytest.raises(ConfigError, match="join = 'any'"):
        Agent(model, run_options={"join": "any"})
    with pytest.raises(ConfigError, match="join = 51"):
        await Agent(model, storage=Storage(journal=SqliteJournal(":memory:"))).run("go", join=51)
    assert model.asks == []


async def test_a_person_who_stops_a_call_is_not_taken_for_a_join() -> None:
    branches = Branches()
    model = Scripted([calls(("branch", {"does": "hang"})), says("ok")])
    agent = Agent(
        model,
        [branches.tool],
        storage=Storage(journal=SqliteJournal(":memory:")),
        host=Host(interruptible=True),
    )
    session = agent.session()
    run = asyncio.ensure_future(session.run("go"))
    await asyncio.wait_for(branches.hanging.wait(), BOUND)
    session.tell("stop that", PERSON_SOURCE)
    assert session.driver.stop_call()
    ran = await asyncio.wait_for(run, BOUND)
    assert ran.results[0].error_message == "stopped" and not session.driver.stop_call()


async def test_a_run_that_is_cancelled_while_calls_are_being_ended_settles() -> None:
    ending = asyncio.Event()

    @tool(side_effect="read", timeout=BOUND)
    async def stubborn() -> str:
        """Takes its time to end."""
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.Event().wait()
        return ""

    @tool(side_effect="none")
    async def quick() -> str:
        """At once."""
        await asyncio.sleep(0)
        return "quick"

    with SqliteJournal(":memory:") as journal:
        model = Scripted([calls(("stubborn", {}), ("quick", {})), says("ok")])
        session = Agent(
            model, [stubborn, quick], storage=Storage(journal=journal), run_options={"join": 1}
        ).session()
        run = asyncio.ensure_future(session.run("go"))
        await asyncio.wait_for(ending.wait(), BOUND)
        run.cancel()
        await asyncio.wait([run], timeout=BOUND)
        assert run.cancelled()
        results = session.driver.machine.results()
        assert [r.error_type for r in results] == [ErrorType.CANCELLED, ErrorType.NONE]


def test_an_agent_that_may_write_is_alone_in_its_round_even_if_writing_twice_does_no_harm() -> None:
    @tool(side_effect="write", idempotent=True)
    def put() -> str:
        """Put."""
        return ""

    @tool(side_effect="read")
    def get() -> str:
        """Get."""
        return ""

    agents = [
        SubAgent("writer", "Writes.", tools=["put"]),
        SubAgent("reader", "Reads.", tools=["get"]),
    ]
    delegate = Agent(Scripted([]), [put, get], plugins=[Parts(agents=agents)]).catalog.get(
        "delegate"
    )
    assert delegate is not None
    assert delegate.access({"task": "x", "agent": "writer"}) == EVERYTHING
    assert delegate.access({"task": "x", "agent": "reader"}).writes == ()
