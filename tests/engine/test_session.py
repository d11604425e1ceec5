"""Whole runs through the public API, with a scripted model and real tools."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest

from ferrule import (
    WRITES,
    Agent,
    ConfigError,
    Context,
    ErrorType,
    LimitReached,
    Limits,
    ProviderError,
    Scripted,
    SessionNotFound,
    TextDelta,
    ToolCalling,
    tool,
)
from ferrule.core.errors import JournalError, RunCancelled
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    DirectCall,
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    ToolAnswered,
)
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.engine.live_events import Live
from ferrule.models.scripted import ScriptError, calls, fails, says
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import FakeClock, RecordingApprover
from grouped_options import grouped


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(steps: list[Any], tools: list[Any], **options: Any) -> Agent:
    options.setdefault("journal", SqliteJournal(":memory:"))
    return Agent(Scripted(steps), tools, **grouped(**options))


async def test_a_question_becomes_a_call_a_result_and_an_answer() -> None:
    ours = agent([calls(("add", {"a": 2, "b": 3})), says("It is 5.")], [add])
    result = await ours.run("What is 2 + 3?")
    assert (result.text, result.stop, result.turns) == ("It is 5.", "done", 2)
    assert [r.data for r in result.results] == [5]
    history = ours.model_client.histories[-1]  # type: ignore[attr-defined]
    assert [type(m) for m in history] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ][: len(history)]
    assert history[-1].text == "5"
    await ours.model_client.close()


def test_run_sync_works_without_and_within_an_event_loop() -> None:
    assert agent([says("hi")], []).run_sync("hello").text == "hi"

    async def inside() -> str:
        return agent([says("hi")], []).run_sync("hello").text

    assert asyncio.run(inside()) == "hi"


class Unreachable(Scripted):
    """A model whose connection cannot be closed."""

    async def disconnect(self) -> None:
        raise OSError("no connection")


def test_run_sync_raises_what_ended_the_run_and_not_what_went_wrong_after_it() -> None:
    model = Unreachable([calls(("add", {"a": n, "b": 1})) for n in range(3)])
    with pytest.raises(LimitReached) as caught:
        Agent(model, [add], limits=Limits(max_turns=1)).run_sync("go")
    assert caught.value.__notes__ == ["then, on disconnecting: no connection"]


def test_several_runs_of_run_sync_follow_one_script_and_the_end_is_checked_on_closing() -> None:
    ours = agent([says("one"), says("two"), says("three")], [])
    assert [ours.run_sync(text).text for text in "ab"] == ["one", "two"]
    with pytest.raises(ScriptError, match="1 of 3 steps were not used"), ours:
        pass


async def test_what_ends_a_block_is_raised_and_what_closing_says_is_a_note_of_it() -> None:
    with pytest.raises(KeyError) as caught:
        async with agent([says("unused")], []):
            raise KeyError("mine")
    assert "1 of 1 steps were not used" in caught.value.__notes__[0]
    with pytest.raises(KeyError) as caught, agent([says("unused")], []):
        raise KeyError("mine")
    assert "1 of 1 steps were not used" in caught.value.__notes__[0]


async def test_a_stream_shows_every_step_in_order_and_joins_to_the_answer() -> None:
    @tool(side_effect="write")
    def keep(n: int) -> str:
        """Keep a number."""
        return str(n)

    steps = [calls(("add", {"a": 1, "b": 1})), calls(("keep", {"n": 2})), says("It is two.")]
    ours = agent(steps, [add, keep], allow=["keep"])
    seen = [item async for item in ours.stream("1+1?")]
    kinds = [type(item) for item in seen if not isinstance(item, TextDelta)]
    read = [ModelAnswered, CallEvaluated, ToolAnswered]
    effect = [ModelAnswered, CallEvaluated, CallStarted, ToolAnswered]
    order = [*read, *effect, ModelAnswered, RunFinished]
    assert [k for k in kinds if k in order] == order
    assert "".join(item.text for item in seen if isinstance(item, TextDelta)) == "It is two."


async def test_a_stream_that_ended_keeps_nothing_of_later_runs() -> None:
    session = agent([says("one")], []).session()
    before = session.driver.log._observers  # nothing else shows who still listens
    assert [item async for item in session.stream("go")]
    assert session.driver.log._observers == before
    await session.close()


@pytest.mark.proves("every-id-answered")
async def test_four_calls_of_four_kinds_get_four_results_in_order() -> None:
    ran: list[str] = []

    @tool(side_effect="write")
    def burn(path: Annotated[str, WRITES]) -> str:
        """Change a file."""
        ran.append(path)
        return "burnt"

    steps = [
        calls(("add", {"a": 1, "b": 2}), ("add", {"a": "x"}), ("ad", {}), ("burn", {"path": "a"})),
        says("ok"),
    ]
    result = await agent(steps, [add, burn], deny=["burn"]).run("go")
    kinds = [r.error_type for r in result.results]
    assert kinds == [
        ErrorType.NONE,
        ErrorType.VALIDATION_FAILED,
        ErrorType.NOT_FOUND,
        ErrorType.PERMISSION_DENIED,
    ]
    assert "`add`" in (result.results[2].error_message or "")
    assert ran == []


async def test_an_ask_without_anybody_to_ask_is_a_no_that_says_so() -> None:
    @tool(side_effect="execute")
    def launch() -> str:
        """Launch it."""
        raise AssertionError("must not run")

    result = await agent([calls(("launch", {})), says("ok")], [launch]).run("go")
    assert result.results[0].error_type is ErrorType.PERMISSION_DENIED
    assert "no one was available to approve it" in (result.results[0].error_message or "")


@pytest.mark.proves("approval.four-answers")
@pytest.mark.parametrize(
    ("answers", "asked", "ran"), [(["once"], 2, 2), (["session"], 1, 2), (["deny"], 2, 0)]
)
async def test_once_asks_again_session_does_not_and_deny_answers_the_model(
    answers: list[str], asked: int, ran: int
) -> None:
    count = 0

    @tool(side_effect="external")
    def send(n: int) -> str:
        """Send it."""
        nonlocal count
        count += 1
        return "sent"

    approver = RecordingApprover(answers)
    steps = [calls(("send", {"n": 1})), calls(("send", {"n": 2})), says("ok")]
    result = await agent(steps, [send], approver=approver).run("go")
    assert (len(approver.requests), count) == (asked, ran)
    assert len(result.results) == 2
    assert {r.digest for r in approver.requests} == {
        r.digest for r in approver.requests if len(r.digest) == 64
    }


async def test_a_session_grant_holds_after_the_session_is_resumed() -> None:
    @tool(side_effect="external")
    def send(n: int) -> str:
        """Send it."""
        return "sent"

    journal = SqliteJournal(":memory:")
    first = agent(
        [calls(("send", {"n": 1})), says("ok")],
        [send],
        approver=RecordingApprover(["session"]),
        journal=journal,
    )
    done = await first.run("go")
    second = agent([calls(("send", {"n": 2})), says("ok")], [send], journal=journal)
    session = second.resume(done.session)
    again = await session.run("again")
    assert again.results[0].success
    third = agent([calls(("send", {"n": 3})), says("ok")], [send], journal=journal)
    assert not (await third.run("another session")).results[0].success


@pytest.mark.proves("limits.turns")
async def test_too_many_rounds_is_a_typed_error_and_the_session_can_go_on() -> None:
    steps = [calls(("add", {"a": n, "b": 1})) for n in range(3)]
    ours = agent([*steps, says("done now")], [add], limits=Limits(max_turns=3))
    session = ours.session()
    with pytest.raises(LimitReached) as caught:
        await session.run("go")
    assert (caught.value.limit, caught.value.value, caught.value.session) == (
        "max_turns",
        3,
        session.id,
    )
    assert (await session.run("go on")).text == "done now"


@pytest.mark.proves("limits.seconds")
async def test_a_run_over_its_time_is_stopped_answered_and_typed() -> None:
    started = asyncio.Event()

    @tool(side_effect="read")
    async def wait() -> str:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    ours = agent([calls(("wait", {}))], [wait], limits=Limits(max_seconds=0.05))
    session = ours.session()
    with pytest.raises(LimitReached) as caught:
        await session.run("go")
    assert started.is_set() and caught.value.limit == "max_seconds"
    assert [m.success for m in session.driver.machine.history if isinstance(m, ToolMessage)] == [
        False
    ]
    *_, end = ours.journal.records(session.id)
    assert isinstance(end.event, RunFinished) and end.event.detail == "max_seconds = 0.05"


@pytest.mark.proves("limits.tokens")
async def test_a_run_over_its_tokens_is_stopped() -> None:
    from ferrule.core.events import Usage

    ours = agent(
        [calls(("add", {"a": 1, "b": 1}), usage=Usage(900, 200))],
        [add],
        limits=Limits(max_tokens=1000),
    )
    with pytest.raises(LimitReached, match="max_tokens"):
        await ours.run("go")


async def test_cancelling_a_run_stops_the_handler_and_answers_every_call() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @tool(side_effect="write")
    async def slow() -> str:
        """Take long."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    journal = SqliteJournal(":memory:")
    ours = agent(
        [calls(("slow", {}), ("add", {"a": 1, "b": 1})), says("never")],
        [slow, add],
        allow=["slow"],
        journal=journal,
    )
    session = ours.session()
    task = asyncio.create_task(session.run("go"))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
    answered = [
        e.result for r in journal.records(session.id) if isinstance(e := r.event, ToolAnswered)
    ]
    slow_result = next(r for r in answered if r.tool == "slow")
    assert "outcome unknown" in (slow_result.error_message or "")
    finished = [e for r in journal.records(session.id) if isinstance(e := r.event, RunFinished)]
    assert [f.stop for f in finished] == ["cancelled"]
    told = [m.call_id for m in session.driver.machine.history if isinstance(m, ToolMessage)]
    assert len(told) == 2


async def test_stopping_one_call_lets_the_run_go_on() -> None:
    started = asyncio.Event()

    @tool(side_effect="read")
    async def slow() -> str:
        """Take long."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    ours = agent([calls(("slow", {})), says("went on")], [slow], interruptible=True)
    session = ours.session()
    task = asyncio.create_task(session.run("go"))
    await asyncio.wait_for(started.wait(), 5)
    assert session.driver.stop_call()
    result = await asyncio.wait_for(task, 5)
    assert result.text == "went on"
    assert result.results[0].error_type is ErrorType.CANCELLED


async def test_a_provider_failure_is_raised_typed_and_leaves_the_session_usable() -> None:
    ours = agent(
        [fails(ProviderError("no server", code="unreachable", hint="start it")), says("hello")], []
    )
    session = ours.session()
    with pytest.raises(ProviderError) as caught:
        await session.run("go")
    assert caught.value.code == "unreachable"
    assert (await session.run("again")).text == "hello"


@pytest.mark.proves("context.nested-call")
async def test_a_tool_may_call_another_through_the_same_gate() -> None:
    @tool(side_effect="none")
    async def twice(n: int, context: Context) -> str:
        """Add a number to itself, and try something forbidden."""
        assert context.call is not None
        good = await context.call("add", {"a": n, "b": n})
        bad = await context.call("forbidden", {})
        return f"{good.data} {bad.error_type}"

    @tool(side_effect="none")
    def forbidden() -> str:
        """Never."""
        raise AssertionError("must not run")

    result = await agent(
        [calls(("twice", {"n": 4})), says("ok")], [twice, add, forbidden], deny=["forbidden"]
    ).run("go")
    assert result.results[-1].data == "8 permission_denied"


@pytest.mark.proves("session.direct-call")
async def test_a_person_can_call_a_tool_without_a_model() -> None:
    ran: list[str] = []

    @tool(side_effect="write")
    def note(text: str) -> str:
        """Write something down."""
        ran.append(text)
        return f"noted {text}"

    @tool(side_effect="write")
    def erase() -> str:
        """Erase everything."""
        ran.append("erased")
        return "erased"

    ours = agent([], [add, note, erase], allow=["note"], deny=["erase"])
    session = ours.session()
    assert (await session.call("add", a=40, b=2)).data == 42
    assert (await session.call("add", a="one", b=2)).error_type is ErrorType.VALIDATION_FAILED
    assert (await session.call("ad", a=1, b=2)).error_type is ErrorType.NOT_FOUND
    assert (await session.call("erase")).error_type is ErrorType.PERMISSION_DENIED
    assert (await session.call("note", text="milk")).data == "noted milk"
    assert ran == ["milk"], "what is denied does not run, what is allowed runs once"

    assert ours.model_client.asks == [], "no model is asked"  # type: ignore[attr-defined]
    events = [record.event for record in ours.journal.records(session.id)]
    made = [event.call for event in events if isinstance(event, DirectCall)]
    assert [call.tool for call in made] == ["add", "add", "ad", "erase", "note"]
    started = [event.call_id for event in events if isinstance(event, CallStarted)]
    assert started == [made[-1].id], "the gate and the journal are those of a model's calls"
    results = {
        event.result.call_id: event.result.success
        for event in events
        if isinstance(event, ToolAnswered)
    }
    assert results == {made[0].id: True, made[-1].id: True}
    refused = [
        event.call_id for event in events if isinstance(event, CallEvaluated) and event.result
    ]
    assert refused == [call.id for call in made[1:4]]


@pytest.mark.proves("reliability.writes-do-not")
async def test_a_transient_failure_is_retried_for_reads_and_not_for_writes() -> None:
    from ferrule import ToolFailed

    tries = {"look": 0, "change": 0}

    def attempt(name: str) -> str:
        tries[name] += 1
        if tries[name] < 3:
            raise ToolFailed(ErrorType.IO_ERROR, "busy", transient=True)
        return "fine"

    @tool(side_effect="read")
    def look() -> str:
        """Look."""
        return attempt("look")

    @tool(side_effect="write")
    def change() -> str:
        """Change."""
        return attempt("change")

    clock = FakeClock()
    result = await agent(
        [calls(("look", {}), ("change", {})), says("ok")],
        [look, change],
        allow=["change"],
        clock=clock,
    ).run("go")
    assert [r.success for r in result.results] == [True, False]
    assert tries == {"look": 3, "change": 1}
    assert len(clock.slept) == 2 and 0.15 <= clock.slept[0] <= 0.25 and 0.3 <= clock.slept[1] <= 0.5


@pytest.mark.proves("parallel.reads-together")
async def test_reads_run_together_and_answer_in_the_models_order() -> None:
    arrived = 0
    everyone = asyncio.Event()

    @tool(side_effect="read")
    async def meet(n: int) -> str:
        """Wait until all are here."""
        nonlocal arrived
        arrived += 1
        if arrived == 5:
            everyone.set()
        await asyncio.wait_for(everyone.wait(), 5)
        return f"n{n}"

    steps = [calls(*(("meet", {"n": n}) for n in range(5))), says("ok")]
    result = await agent(steps, [meet]).run("go")
    assert [r.data for r in result.results] == ["n0", "n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_plain_functions_that_declare_nothing_run_together(is_async: bool) -> None:
    # Each waits for all others: one by one none would ever end.
    meeting = threading.Barrier(32)

    def meet(n: int) -> int:
        """Meet the others."""
        meeting.wait(10)
        return n

    async def meet_on_the_loop(n: int) -> int:
        """Meet the others."""
        await asyncio.to_thread(meeting.wait, 10)
        return n

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    given = tool(meet_on_the_loop if is_async else meet, name="meet")
    steps = [calls(*(("meet", {"n": n}) for n in range(32))), says("ok")]
    result = await agent(steps, [given], limits=Limits(max_calls_per_turn=32)).run("go")
    assert [r.data for r in result.results] == list(range(32))


async def test_a_run_can_be_told_to_take_calls_one_by_one() -> None:
    inside = most = 0
    order: list[int] = []

    @tool(side_effect="none")
    async def alone(n: int) -> str:
        """Be alone."""
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        order.append(n)
        await asyncio.sleep(0)
        inside -= 1
        return str(n)

    steps = [calls(*(("alone", {"n": n}) for n in range(4))), says("ok")]
    await agent(steps, [alone], tool_calling=ToolCalling(parallel=False)).run("go")
    assert (most, order) == (1, [0, 1, 2, 3])


@pytest.mark.proves("results.envelope")
async def test_envelope_shows_the_result_object_always_and_value_only_on_failure() -> None:
    for results, begins in (("value", "3"), ("envelope", '{"success":true,"data":3')):
        ours = agent(
            [calls(("add", {"a": 1, "b": 2}), ("add", {"a": 1})), says("ok")],
            [add],
            results=results,
        )
        await ours.run("go")
        good, bad = (m for m in ours.model_client.histories[-1] if isinstance(m, ToolMessage))  # type: ignore[attr-defined]
        assert good.text.startswith(begins)
        if results == "value":
            assert bad.text.startswith("validation_failed: `add`: `b` is missing")
        else:
            assert bad.text.startswith(
                '{"success":false,"data":null,"error_message":"`add`: `b` is missing"'
            )


@pytest.mark.proves("framing.untrusted")
async def test_the_system_text_frames_tool_output_as_data_and_never_changes() -> None:
    journal = SqliteJournal(":memory:")
    ours = agent([says("one")], [add], journal=journal)
    done = await ours.run("go")
    later = agent([says("two")], [add], journal=journal, instructions="Something else.")
    await later.resume(done.session).run("more")
    first, second = ours.model_client.opened[0].system, later.model_client.opened[0].system  # type: ignore[attr-defined]
    assert "untrusted" in first and first == second


@pytest.mark.proves("rules.bare-deny-hides")
async def test_a_tool_denied_by_name_is_not_shown_to_the_model() -> None:
    @tool
    def secret() -> str:
        """Hidden."""
        return ""

    ours = agent([says("ok")], [add, secret], deny=["secret"])
    await ours.run("go")
    assert [spec.name for spec in ours.model_client.opened[0].tools] == ["add"]  # type: ignore[attr-defined]


async def test_a_session_of_somebody_else_does_not_exist() -> None:
    journal = SqliteJournal(":memory:")
    done = await agent([says("mine")], [], journal=journal, user="ann").run("go")
    with pytest.raises(SessionNotFound):
        agent([], [], journal=journal, user="bob").resume(done.session)
    with pytest.raises(SessionNotFound):
        agent([], [], journal=journal, user="ann").resume("nothing-like-it")


async def test_a_hundred_runs_at_once_do_not_mix() -> None:
    @tool(side_effect="none")
    async def who(context: Context) -> str:
        """Say whose run this is."""
        await asyncio.sleep(0)
        return context.identity.session

    async def one(n: int, journal: SqliteJournal) -> None:
        ours = agent(
            [calls(("who", {})), says(f"answer {n}")], [who], journal=journal, user=f"user{n}"
        )
        result = await ours.run(f"question {n}")
        assert (result.text, result.results[0].data) == (f"answer {n}", result.session)

    journal = SqliteJournal(":memory:")
    await asyncio.gather(*(one(n, journal) for n in range(100)))
    for info in journal.sessions():
        journal.verify(info.session)


async def test_who_answered_a_question_is_in_the_journal() -> None:
    @tool(side_effect="external")
    def send() -> str:
        """Send."""
        return "sent"

    journal = SqliteJournal(":memory:")
    done = await agent(
        [calls(("send", {})), says("ok")],
        [send],
        approver=RecordingApprover(["once"]),
        journal=journal,
    ).run("go")
    answers = [e for r in journal.records(done.session) if isinstance(e := r.event, PersonAnswered)]
    assert [(a.choice, a.by) for a in answers] == [("once", "test")]


async def test_a_journal_that_cannot_be_written_stops_the_run_before_any_effect(
    tmp_path: Path,
) -> None:
    from ferrule import JournalError

    ran: list[int] = []

    @tool
    def effect() -> str:
        """Do it."""
        ran.append(1)
        return "done"

    journal = SqliteJournal(tmp_path / "j.db")
    ours = agent(
        [lambda history: (journal.close(), calls(("effect", {})))[1], says("never")],
        [effect],
        journal=journal,
    )
    with pytest.raises(JournalError):
        await ours.run("go")
    assert ran == []


async def test_a_denied_path_is_not_found_by_a_search_or_a_listing_either(tmp_path: Path) -> None:
    from ferrule.toolkits.files import browse
    from ferrule.toolkits.search import search_files as search

    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "plan.txt").write_text("the canary sings\n")
    (tmp_path / "open.txt").write_text("no canary here\n")
    ours = agent(
        [],
        [*search.TOOLS, *browse.TOOLS],
        workspace=tmp_path,
        deny=["Read(private/**)"],
        allow=["search_files"],
    )
    session = ours.session()
    found = await session.call("search_files", pattern="canary")
    assert found.success and "open.txt" in found.to_text() and "sings" not in found.to_text()
    tree = await session.call("file_tree")
    assert "plan.txt" not in tree.to_text()
    await session.close()


async def test_a_grant_given_for_one_call_covers_the_next_of_the_same_round() -> None:
    @tool(side_effect="external")
    def send(n: int) -> str:
        """Send it."""
        return "sent"

    approver = RecordingApprover(["session"])
    result = await agent(
        [calls(("send", {"n": 1}), ("send", {"n": 2})), says("ok")], [send], approver=approver
    ).run("go")
    assert [r.success for r in result.results] == [True, True]
    assert len(approver.requests) == 1


@pytest.mark.usefixtures("commands_are_held")
async def test_a_rule_for_a_command_is_enough_to_run_it(tmp_path: Path) -> None:
    from ferrule.toolkits import commands as shell

    (tmp_path / "a.txt").write_text("one\n")
    session = agent([], shell.TOOLS, workspace=tmp_path, allow=["Bash(cat:*)"]).session()
    assert "one" in (await session.call("run_command", command=["cat", "a.txt"])).to_text()
    assert (
        await session.call("run_command", command=["cat", "/etc/hostname"])
    ).error_type is ErrorType.PERMISSION_DENIED
    assert (
        await session.call("run_command", command=["touch", "b.txt"])
    ).error_type is ErrorType.PERMISSION_DENIED


async def test_no_offer_reaches_above_the_workspace(tmp_path: Path) -> None:
    from ferrule.toolkits.files import browse
    from ferrule.toolkits.files import tools as files
    from ferrule.toolkits.search import search_files as search

    approver = RecordingApprover(["deny"])
    kits = [*files.TOOLS, *browse.TOOLS, *search.TOOLS]
    gate = PermissionGate(root=tmp_path, reads="ask")
    session = agent([], kits, workspace=tmp_path, approver=approver, gate=gate).session()
    await session.call("search_files", pattern="x")
    await session.call("read_file", path="a.txt")
    await session.call("file_outline", path=".")
    rules = [
        offer.rule for request in approver.requests for offer in request.offers if "(" in offer.rule
    ]
    assert rules and all(
        rule.split("(", 1)[1].startswith(f"/{tmp_path}/") or f"/{tmp_path})" in rule
        for rule in rules
    )


async def test_a_direct_call_cancelled_at_its_question_does_not_hold_up_the_next() -> None:
    asked = asyncio.Event()

    class Never:
        async def ask(self, request: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

    @tool(side_effect="external")
    def send(n: int) -> str:
        """Send."""
        return "sent"

    session = agent([], [send], approver=Never()).session()
    task = asyncio.create_task(session.call("send", n=1))
    await asyncio.wait_for(asked.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    session.approvals.set_approver(RecordingApprover(["once"]))
    assert (await asyncio.wait_for(session.call("send", n=2), 5)).success


async def test_an_approver_that_breaks_has_not_said_yes() -> None:
    class Broken:
        async def ask(self, request: Any) -> Any:
            raise RuntimeError("the window was closed")

    @tool(side_effect="external")
    def send() -> str:
        """Send."""
        raise AssertionError("must not run")

    result = await agent([calls(("send", {})), says("ok")], [send], approver=Broken()).run("go")
    assert "the window was closed" in (result.results[0].error_message or "")


async def test_calls_without_ids_have_one_name_in_journal_stream_and_history() -> None:
    journal = SqliteJournal(":memory:")
    ours = agent([calls(("add", {"a": 1, "b": 2})), says("ok")], [add], journal=journal)
    items = [item async for item in ours.stream("go")]
    streamed = next(item.calls[0].id for item in items if isinstance(item, ModelAnswered))
    answered = next(item.result.call_id for item in items if isinstance(item, ToolAnswered))
    session = journal.sessions()[0].session
    kept = next(
        e.calls[0].id
        for r in journal.records(session)
        if isinstance(e := r.event, ModelAnswered) and e.calls
    )
    assert streamed == answered == kept != ""


async def test_without_fallback_calls_in_the_text_of_a_native_answer_are_not_run() -> None:
    prose = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    on = await agent([says(prose), says("three")], [add]).run("go")
    off = await agent([says(prose)], [add], fallback=False).run("go")
    assert [r.data for r in on.results] == [3]
    assert off.results == ()


def test_an_unknown_option_is_told_of_the_nearest_and_of_all() -> None:
    options: dict[str, Any] = {"instruction": "x"}
    with pytest.raises(TypeError) as raised:
        Agent("scripted:x", **options)
    said = str(raised.value)
    assert "did you mean `instructions`" in said
    assert all(name in said for name in ("workspace", "permissions", "storage", "run_options"))


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("approver", "permissions=Permissions(approver=...)"),
        ("journal", "storage=Storage(journal=...)"),
        ("fallback", "tool_calling=ToolCalling(fallback=...)"),
        ("bus", "host=Host(bus=...)"),
    ],
)
def test_an_option_of_a_value_is_told_of_that_value(option: str, place: str) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(TypeError) as raised:
        Agent("scripted:x", **options)
    assert place in str(raised.value)


async def test_a_second_run_at_once_is_told_that_the_session_is_busy_and_the_first_goes_on() -> (
    None
):
    begun, free = asyncio.Event(), asyncio.Event()

    @tool(side_effect="none")
    async def wait_here() -> str:
        """Wait."""
        begun.set()
        await free.wait()
        return "waited"

    agent = Agent(Scripted([calls(("wait_here", {})), says("first"), says("second")]), [wait_here])
    session = agent.session()
    first = asyncio.create_task(session.run("one"))
    async with asyncio.timeout(20):
        await begun.wait()
        with pytest.raises(ConfigError) as raised:
            await session.run("two")
        free.set()
        assert (raised.value.code, "is busy" in raised.value.detail) == ("busy", True)
        assert (await first).text == "first"
        assert (await session.run("two")).text == "second"
    await session.close()


async def test_any_number_of_observers_see_a_session_until_they_stop() -> None:
    session = agent([says("one"), says("two")], []).session()
    first: list[Live] = []
    second: list[Live] = []
    stop_first = session.observe(first.append)
    session.observe(second.append)
    await session.run("go")
    assert first == second and any(isinstance(item, RunFinished) for item in first)
    stop_first()
    stop_first()
    await session.run("again")
    runs = [sum(isinstance(item, RunFinished) for item in seen) for seen in (first, second)]
    assert runs == [1, 2]


async def test_a_cancelled_run_is_settled_and_the_session_goes_on() -> None:
    begun = asyncio.Event()

    @tool(side_effect="none")
    async def hang() -> str:
        """Never end."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    session = agent([calls(("hang", {})), says("later")], [hang], allow=["hang"]).session()
    assert session.cancel() is False
    running = asyncio.create_task(session.run("go"))
    await begun.wait()
    assert session.cancel() is True and session.cancel() is False
    with pytest.raises(RunCancelled) as cancelled:
        await running
    assert (cancelled.value.code, cancelled.value.exit_code) == ("cancelled", 130)
    assert not running.cancelled() and not session.is_busy
    assert [str(result.error_type) for result in session.results()] == ["cancelled"]
    assert (await session.run("again")).text == "later"


async def test_a_session_forks_itself_behind_a_run() -> None:
    ours = agent([says("one"), says("two"), says("three")], [])
    session = ours.session()
    await session.run("first")
    await session.run("second")
    forked = ours.resume(session.fork(1))
    assert [message.text for message in forked.history] == ["first", "one"]


async def test_a_session_object_does_not_write_behind_another_one_of_the_same_session() -> None:
    ours = agent([says("one"), says("two"), says("three"), says("four")], [])
    session = ours.session()
    await session.run("first")
    other = ours.resume(session.id)
    assert (await other.run("second")).text == "two"
    with pytest.raises(JournalError, match="another session object") as refused:
        await session.run("third")
    assert refused.value.code == "session_continued_elsewhere"
    anew = ours.resume(session.id)
    assert (await anew.run("third")).text == "three"
    assert [message.text for message in ours.resume(session.id).history] == [
        *("first", "one", "second", "two", "third", "three")
    ]


class Disconnecting(Scripted):
    """A model client that counts how often it was disconnected."""

    count = 0

    async def disconnect(self) -> None:
        self.count += 1


def test_a_run_without_an_event_loop_leaves_no_connection_behind() -> None:
    model = Disconnecting([says("one")])
    assert Agent(model, **grouped(journal=":memory:")).run_sync("go").text == "one"
    assert model.count == 1
    broken = Disconnecting([fails(ProviderError("no server"))])
    with pytest.raises(ProviderError):
        Agent(broken, **grouped(journal=":memory:")).run_sync("go")
    assert broken.count == 1
