"""Open sessions: runs that belong to the server, what they ask, and what people do with them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ferrule import SubAgent, tool
from ferrule.console import open_sessions as sessions
from ferrule.console.assemblies import SessionSetup
from ferrule.console.open_sessions import ConsoleSession, SessionActionError
from ferrule.console.questions import Question, QuestionError
from ferrule.console.viewer import Viewer
from ferrule.core.errors import FerruleError
from ferrule.core.events import (
    CallEvaluated,
    PersonAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
)
from ferrule.core.identity import Identity
from ferrule.models.scripted import calls, says
from ferrule.runtime.http.work_limits import find_refusal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.context import Context

OWNER = Viewer("owner", True)
BOB = Viewer("bob", False)


def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


NOTE = tool(note, risk="high", side_effect="write")
READ = tool(lambda: "seen", name="look", description="Look.", side_effect="none", risk="safe")


async def asked(serving: Any, count: int = 1) -> list[Question]:
    """The questions that wait, once there are so many."""
    async with asyncio.timeout(10):
        while len(found := serving.console.open_sessions.list_questions(OWNER)) < count:
            await asyncio.sleep(0.005)
    return found


async def over(live: ConsoleSession) -> None:
    """Once its run is over."""
    assert live.run_task is not None
    async with asyncio.timeout(10):
        await asyncio.wait([live.run_task])


def events(serving: Any, session: str, kind: type) -> list[Any]:
    return [one.event for one in serving.journal.records(session) if isinstance(one.event, kind)]


async def test_a_run_goes_on_without_anybody_looking(served: Any) -> None:
    async with served({"scripted:a": [calls(("look", {})), says("done")]}, tools=[READ]) as serving:
        live = await serving.console.open_sessions.start(OWNER, "look around")
        await over(live)
        assert [one.stop for one in events(serving, live.id, RunFinished)] == ["done"]


async def test_a_yes_lets_the_call_run_and_says_who_gave_it(served: Any) -> None:
    async with served(
        {"scripted:a": [calls(("note", {"text": "x"})), says("ok")]}, tools=[NOTE]
    ) as serving:
        live = await serving.console.open_sessions.start(OWNER, "note x")
        (question,) = await asked(serving)
        serving.console.open_sessions.questions.answer(
            OWNER, question.id, question.request.digest, "once"
        )
        await over(live)
        (answer,) = events(serving, live.id, PersonAnswered)
        assert (answer.choice, answer.by, answer.digest) == (
            "once",
            "owner",
            question.request.digest,
        )
        assert [one.result.data for one in events(serving, live.id, ToolAnswered)] == ["noted x"]


@pytest.mark.proves("console.approval-bound")
async def test_an_answer_about_other_arguments_counts_for_nothing(served: Any) -> None:
    async with served(
        {"scripted:a": [calls(("note", {"text": "x"})), says("ok")]}, tools=[NOTE]
    ) as serving:
        live = await serving.console.open_sessions.start(OWNER, "note x")
        (question,) = await asked(serving)
        with pytest.raises(QuestionError, match="arguments changed"):
            serving.console.open_sessions.questions.answer(OWNER, question.id, "0" * 64, "once")
        assert serving.console.open_sessions.list_questions(OWNER) == [question]
        serving.console.open_sessions.questions.answer(
            OWNER, question.id, question.request.digest, "deny", note="not now"
        )
        await over(live)
        (answer,) = events(serving, live.id, PersonAnswered)
        assert (answer.choice, answer.note) == ("deny", "denied by a person: not now")
        assert events(serving, live.id, ToolAnswered) == []


@pytest.mark.proves("console.approval-once")
async def test_a_question_is_answered_once(served: Any) -> None:
    async with served(
        {"scripted:a": [calls(("note", {"text": "x"})), says("ok")]}, tools=[NOTE]
    ) as serving:
        live = await serving.console.open_sessions.start(OWNER, "note x")
        (question,) = await asked(serving)
        questions, digest = serving.console.open_sessions.questions, question.request.digest
        questions.answer(OWNER, question.id, digest, "deny")
        with pytest.raises(QuestionError, match="no longer open"):
            questions.answer(OWNER, question.id, digest, "once")
        await over(live)
        assert [one.choice for one in events(serving, live.id, PersonAnswered)] == ["deny"]


async def test_only_what_the_gate_offered_is_granted(served: Any) -> None:
    async with served(
        {"scripted:a": [calls(("note", {"text": "x"})), says("ok")]}, tools=[NOTE]
    ) as serving:
        live = await serving.console.open_sessions.start(OWNER, "note x")
        (question,) = await asked(serving)
        questions, digest = serving.console.open_sessions.questions, question.request.digest
        with pytest.raises(QuestionError, match="not offered"):
            questions.answer(OWNER, question.id, digest, "session", "Bash(*)")
        offer = next(one for one in question.request.offers if one.choice == "session")
        questions.answer(OWNER, question.id, digest, "session", offer.rule)
        await over(live)
        assert [one.grant for one in events(serving, live.id, PersonAnswered)] == [offer.rule]


async def test_what_is_remembered_for_good_is_the_owners_to_say(served: Any) -> None:
    async with served({"scripted:a": [calls(("note", {"text": "x"}))]}, tools=[NOTE]) as serving:
        live = await serving.console.open_sessions.start(BOB, "note x")
        (question,) = await asked(serving)
        assert "remember" in {one.choice for one in question.request.offers}
        assert {one.choice for one in question.offers(BOB)} == {"once", "session"}
        grant = next(one.rule for one in question.request.offers if one.choice == "remember")
        with pytest.raises(QuestionError, match="not offered"):
            serving.console.open_sessions.questions.answer(
                BOB, question.id, question.request.digest, "remember", grant
            )
        await serving.console.open_sessions.stop_run(live.id)


async def test_critical_risk_is_for_an_operator_to_allow(served: Any) -> None:
    worst = tool(note, name="worst", risk="critical", side_effect="execute")
    async with served(
        {"scripted:a": [calls(("worst", {"text": "x"})), says("ok")]}, tools=[worst]
    ) as serving:
        live = await serving.console.open_sessions.start(BOB, "do it")
        (question,) = await asked(serving)
        assert question.offers(BOB) == () and [one.choice for one in question.offers(OWNER)] == [
            "once"
        ]
        serving.console.open_sessions.questions.answer(
            BOB, question.id, question.request.digest, "deny"
        )
        await over(live)


async def test_nobody_answers_for_somebody_else(served: Any) -> None:
    async with served({"scripted:a": [calls(("note", {"text": "x"}))]}, tools=[NOTE]) as serving:
        live = await serving.console.open_sessions.start(OWNER, "note x")
        (question,) = await asked(serving)
        assert serving.console.open_sessions.list_questions(BOB) == []
        with pytest.raises(QuestionError, match="no longer open"):
            serving.console.open_sessions.questions.answer(
                BOB, question.id, question.request.digest, "deny"
            )
        await serving.console.open_sessions.stop_run(live.id)


def hanging() -> tuple[Any, asyncio.Event]:
    """A tool that runs until it is stopped, and what is set once it runs."""
    begun = asyncio.Event()

    async def hang() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    return tool(hang, description="Hang.", side_effect="execute", risk="safe"), begun


async def test_stopping_ends_the_run_and_answers_its_calls(served: Any) -> None:
    hang, begun = hanging()
    async with served({"scripted:a": [calls(("hang", {}))]}, tools=[hang]) as serving:
        live = await serving.console.open_sessions.start(OWNER, "hang")
        await begun.wait()
        await serving.console.open_sessions.stop_run(live.id)
        assert [one.stop for one in events(serving, live.id, RunFinished)] == ["cancelled"]
        assert [str(one.result.error_type) for one in events(serving, live.id, ToolAnswered)] == [
            "cancelled"
        ]
        with pytest.raises(SessionActionError, match="no run of this session"):
            await serving.console.open_sessions.stop_run(live.id)


async def test_one_call_is_stopped_and_the_run_goes_on(served: Any) -> None:
    hang, begun = hanging()
    async with served(
        {"scripted:a": [calls(("hang", {}, "c1")), says("well")]}, tools=[hang]
    ) as serving:
        live = await serving.console.open_sessions.start(OWNER, "hang")
        await begun.wait()
        serving.console.open_sessions.stop_call(live.id, "c1")
        await over(live)
        (finished,) = events(serving, live.id, RunFinished)
        assert (finished.stop, finished.text) == ("done", "well")


async def test_words_on_the_way_are_read_before_the_next_answer(served: Any) -> None:
    hang, begun = hanging()
    read: list[str] = []

    def answer(history: Any) -> Any:
        read.extend(str(getattr(message, "text", "")) for message in history)
        return says("understood")

    async with served({"scripted:a": [calls(("hang", {}, "c1")), answer]}, tools=[hang]) as serving:
        live = await serving.console.open_sessions.start(OWNER, "hang")
        await begun.wait()
        info = serving.journal.find(live.id)
        assert (await serving.console.open_sessions.send_message(OWNER, info, "be quick")) is live
        serving.console.open_sessions.stop_call(live.id, "c1")
        await over(live)
        assert any("be quick" in text for text in read)


async def test_a_run_whose_server_died_is_taken_up_by_the_next_one(
    served: Any, tmp_path: Any
) -> None:
    store = tmp_path / "shared.db"
    async with served(
        {"scripted:a": [calls(("note", {"text": "x"}))]}, tools=[NOTE], journal=store
    ) as first:
        live = await first.console.open_sessions.start(OWNER, "note x")
        await asked(first)
        left = [*first.journal.records(live.id)]
        copied = tmp_path / "after.db"
        await _died(first, live, copied, left)
    steps = [says("good")]
    async with served({"scripted:a": steps}, tools=[NOTE], journal=copied) as second:
        info = second.journal.find(live.id)
        assert second.console.open_sessions.session_state(info) == "interrupted"
        with pytest.raises(FerruleError, match="still open"):
            await second.console.open_sessions.send_message(OWNER, info, "more")
        again = await second.console.open_sessions.resume_run(OWNER, info)
        (question,) = await asked(second)
        assert question.request.tool.name == "note"
        second.console.open_sessions.questions.answer(
            OWNER, question.id, question.request.digest, "once"
        )
        await over(again)
        assert [one.result.data for one in events(second, live.id, ToolAnswered)] == ["noted x"]
        assert [one.stop for one in events(second, live.id, RunFinished)] == ["done"]


async def _died(serving: Any, live: ConsoleSession, to: Any, left: list[Any]) -> None:
    """A journal as a server that was killed at this moment leaves it."""
    from ferrule.core.identity import Identity
    from ferrule.storage.journal.sqlite import SqliteJournal

    with SqliteJournal(to) as journal:
        for record in left:
            who = Identity(record.tenant, record.user, record.session, record.run)
            journal.append(
                record.session, record.run, [record.event], identity=who, times=[record.time]
            )


async def test_a_fork_goes_on_from_the_end_of_a_run(served: Any) -> None:
    async with served({"scripted:a": [says("one"), says("two"), says("other")]}) as serving:
        at = serving.console.open_sessions
        live = await at.start(OWNER, "first")
        await over(live)
        await at.start_run(live, "second")
        await over(live)
        name = await at.fork(serving.journal.find(live.id), 1)
        assert [one.text for one in events(serving, name, RunFinished)] == ["one"]
        forked = await at.send_message(OWNER, serving.journal.find(name), "instead")
        await over(forked)
        assert [one.text for one in events(serving, name, RunFinished)] == ["one", "other"]
        assert len(events(serving, live.id, RunFinished)) == 2


async def test_a_session_that_was_let_go_can_be_driven_by_another_process(
    served: Any, tmp_path: Any
) -> None:
    from ferrule.core.errors import JournalError
    from ferrule.storage.journal.sqlite import SqliteJournal

    async with served({"scripted:a": [says("one")]}) as serving:
        live = await serving.console.open_sessions.start(OWNER, "first")
        await over(live)
        with SqliteJournal(serving.journal.path) as other:
            with pytest.raises(JournalError, match="in use"):
                other.lease(live.id)
            await serving.console.open_sessions.release(live.id)
            other.lease(live.id)


async def test_a_run_of_another_process_is_shown_as_such_and_not_offered_for_resume(
    served: Any,
) -> None:
    from ferrule.core.events import RunStarted, SessionOpened
    from ferrule.core.identity import Identity
    from ferrule.storage.journal.sqlite import SqliteJournal

    async with served({"scripted:a": []}) as serving:
        with SqliteJournal(serving.journal.path) as other:
            who = Identity("local", "owner", "theirs", "r1")
            other.append("theirs", "r1", [SessionOpened(model="m"), RunStarted("go")], identity=who)
            assert (
                serving.console.open_sessions.session_state(serving.journal.find("theirs"))
                == "elsewhere"
            )
        assert (
            serving.console.open_sessions.session_state(serving.journal.find("theirs"))
            == "interrupted"
        )


async def test_a_tool_is_tried_through_the_gate_in_a_session_of_its_own(served: Any) -> None:
    async with served({"scripted:a": []}, tools=[NOTE]) as serving:
        live = await serving.console.open_sessions.try_tool(OWNER, "note", {"text": "x"})
        (question,) = await asked(serving)
        serving.console.open_sessions.questions.answer(
            OWNER, question.id, question.request.digest, "once"
        )
        await over(live)
        assert [one.verdict for one in events(serving, live.id, CallEvaluated)] == ["ask"]
        assert [one.result.data for one in events(serving, live.id, ToolAnswered)] == ["noted x"]


async def test_a_model_that_leads_nowhere_is_an_error_and_leaves_no_session(served: Any) -> None:
    async with served({"scripted:a": []}) as serving:
        with pytest.raises(KeyError):
            await serving.console.open_sessions.start(OWNER, "hi", SessionSetup("scripted:none"))
        assert serving.console.list_sessions(OWNER) == []
        with pytest.raises(SessionActionError, match="message is empty"):
            await serving.console.open_sessions.start(OWNER, "   ")
        assert serving.console.list_sessions(OWNER) == []


async def test_closing_the_server_settles_its_runs(served: Any, tmp_path: Any) -> None:
    hang, begun = hanging()
    store = tmp_path / "kept.db"
    async with served(
        {"scripted:a": [calls(("hang", {}))]}, tools=[hang], journal=store
    ) as serving:
        live = await serving.console.open_sessions.start(OWNER, "hang")
        await begun.wait()
    from ferrule.storage.journal.sqlite import SqliteJournal

    with SqliteJournal(store) as journal:
        assert journal.find(live.id).state == "cancelled"


async def test_a_session_that_nobody_goes_on_with_is_let_go_after_a_while(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.0)
    async with served({"scripted:a": [says("one"), says("two")]}) as serving:
        live = await serving.console.open_sessions.start(OWNER, "first")
        async with asyncio.timeout(10):
            while serving.console.open_sessions.find(live.id) is not None:
                await asyncio.sleep(0.005)
        again = await serving.console.open_sessions.send_message(
            OWNER, serving.journal.find(live.id), "second"
        )
        await over(again)
        assert again is not live
        assert [one.text for one in events(serving, live.id, RunFinished)] == ["one", "two"]


async def test_there_are_so_many_runs_at_a_time(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "find_refusal", partial(find_refusal, of_one_person=1))
    hang, begun = hanging()
    async with served({"scripted:a": [calls(("hang", {})), says("yes")]}, tools=[hang]) as serving:
        live = await serving.console.open_sessions.start(OWNER, "hang")
        await begun.wait()
        with pytest.raises(SessionActionError, match="1 of your requests"):
            await serving.console.open_sessions.start(OWNER, "me too")
        await over(await serving.console.open_sessions.start(BOB, "and me"))
        await serving.console.open_sessions.stop_run(live.id)


async def test_sessions_of_others_are_theirs_in_the_journal_and_share_the_model(
    served: Any,
) -> None:
    async with served({"scripted:a": [says("one"), says("two")]}) as serving:
        mine = await serving.console.open_sessions.start(OWNER, "first")
        theirs = await serving.console.open_sessions.start(BOB, "second")
        await over(mine)
        await over(theirs)
        assert [serving.journal.find(one.id).user for one in (mine, theirs)] == ["owner", "bob"]
        assert mine.assembly is theirs.assembly
        assert [info.session for info in serving.console.list_sessions(BOB)] == [theirs.id]


async def test_a_session_that_is_being_let_go_is_opened_again_only_then(served: Any) -> None:
    async def leave_open(context: Context) -> str:
        """Leave something open."""
        context.on_close(close_slowly)
        return "open"

    begun, may_end = asyncio.Event(), asyncio.Event()

    async def close_slowly() -> None:
        begun.set()
        await may_end.wait()

    opener = tool(leave_open, side_effect="none", risk="safe")
    async with served(
        {"scripted:a": [calls(("leave_open", {})), says("one"), says("two")]}, tools=[opener]
    ) as serving:
        live = await serving.console.open_sessions.start(OWNER, "first")
        await over(live)
        leaving = asyncio.create_task(serving.console.open_sessions.release(live.id))
        await begun.wait()
        going = asyncio.create_task(
            serving.console.open_sessions.send_message(
                OWNER, serving.journal.find(live.id), "second"
            )
        )
        await asyncio.sleep(0)
        assert not going.done()
        may_end.set()
        await leaving
        again = await going
        await over(again)
        assert [one.text for one in events(serving, live.id, RunFinished)] == ["one", "two"]


@pytest.mark.parametrize(
    ("recorded", "server", "held"),
    [
        ("plan", "default", "plan"),
        ("dontAsk", "default", "dontAsk"),
        ("bypassPermissions", "default", "default"),
        ("acceptEdits", "default", "default"),
        ("default", "plan", "plan"),
        ("dontAsk", "plan", "plan"),
    ],
)
async def test_a_session_is_never_taken_up_with_more_than_the_server_allows_now(
    served: Any, recorded: str, server: str, held: str
) -> None:
    from ferrule.core.identity import Identity

    async with served({"scripted:a": [says("on")]}, mode=server) as serving:
        who = Identity("local", "owner", "old", "r1")
        opened = SessionOpened(model="scripted:a", workspace=str(serving.workspace), mode=recorded)
        serving.journal.append(
            "old", "r1", [opened, RunStarted("go"), RunFinished("done")], identity=who
        )
        serving.journal.release("old")
        live = await serving.console.open_sessions.send_message(
            OWNER, serving.journal.find("old"), "more"
        )
        await over(live)
        assert live.assembly.agent.gate.mode == held


async def test_the_question_of_an_agent_whose_console_was_killed_is_asked_again(
    served: Any, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "tools": [NOTE],
        "agents": [SubAgent("clerk", "Notes.", tools=["note"])],
    }
    script = [
        calls(("delegate", {"task": "note x", "agent": "clerk"})),
        calls(("note", {"text": "x"})),
    ]
    later = tmp_path / "later.db"
    async with served({"scripted:a": script}, **given) as serving:
        live = await serving.console.open_sessions.start(OWNER, "go")
        await asked(serving)
        with SqliteJournal(later) as kept:
            for info in reversed(serving.journal.sessions()):
                for one in serving.journal.records(info.session):
                    who = Identity(one.tenant, one.user, info.session, one.run)
                    kept.append(info.session, one.run, [one.event], identity=who)
        await serving.console.open_sessions.stop_run(live.id)
    script = [says("noted"), says("all done")]
    async with served({"scripted:a": script}, journal=later, **given) as serving:
        consoles = serving.console.open_sessions
        again = await consoles.resume_run(OWNER, serving.journal.find(live.id))
        (question,) = await asked(serving)
        assert question.request.reason.startswith("the agent `clerk`")
        consoles.questions.answer(OWNER, question.id, question.request.digest, "once")
        await over(again)
        [finished] = events(serving, live.id, RunFinished)
        assert (finished.stop, finished.text) == ("done", "all done")
        [result] = [one.result for one in events(serving, live.id, ToolAnswered)]
        [noted] = [one.result for one in events(serving, result.data["session"], ToolAnswered)]
        assert noted.data == "noted x"
