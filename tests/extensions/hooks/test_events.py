"""Hooks on events through the public API: an Agent with a scripted model, real tools, real
journal.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from ferrule import WRITES, Agent, Context, ErrorType, ProviderError, Scripted, TextDelta, tool
from ferrule.core.errors import ConfigError
from ferrule.core.events import ModelAnswered, Noticed, NoticeGiven, ToolAnswered
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.engine.hooks.call_hooks import HookBlocked
from ferrule.engine.hooks.chain import Hooks
from ferrule.engine.hooks.events import (
    Action,
    CompletionPost,
    CompletionPre,
    DelegationPre,
    EventHook,
    Failed,
    ToolPost,
    ToolPre,
    TurnEnd,
    TurnStart,
    allow,
    ask,
    block,
    delegate,
    modify,
)
from ferrule.extensions.hooks.custom_events import emit_event
from ferrule.extensions.hooks.decorator import hook
from ferrule.hooks import Block
from ferrule.models.scripted import calls, fails, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import RecordingApprover
from grouped_options import grouped

MAX_CONTINUATIONS = 3

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    RAN.append((a, b))
    return a + b


@tool(side_effect="write")
def write(path: Annotated[str, WRITES], content: str = "") -> str:
    """Write a file."""
    RAN.append(path)
    return f"wrote {path}"


def agent(
    steps: list[Any], hooks: list[Any], tools: list[Any] | None = None, **options: Any
) -> Agent:
    options.setdefault("journal", SqliteJournal(":memory:"))
    return Agent(Scripted(steps), tools or [add, write], **grouped(hooks=hooks, **options))


def one_call(
    hooks: list[Any], name: str = "add", arguments: dict[str, Any] | None = None, **options: Any
) -> Agent:
    return agent([calls((name, arguments or {"a": 2, "b": 3})), says("done")], hooks, **options)


def events_of(ours: Agent, kind: type) -> list[Any]:
    found = ours.journal.sessions(tenant="local", user=ours.user)
    return [
        r.event for s in found for r in ours.journal.records(s.session) if isinstance(r.event, kind)
    ]


def named(name: str, priority: int, answer: Any, seen: list[str], **options: Any) -> EventHook:
    @hook("tool.pre", priority=priority, name=name, **options)
    async def chained(call: ToolPre) -> Any:
        seen.append(name)
        return answer(call) if callable(answer) else answer

    return chained


# ---- calls


@pytest.mark.proves("hook.order")
async def test_the_lower_number_goes_first_and_the_first_block_ends_it() -> None:
    seen: list[str] = []
    plus = named(
        "ten", 10, lambda c: modify({"arguments": {**c.arguments, "a": c.arguments["a"] + 1}}), seen
    )
    no = named("twenty", 20, block("no"), seen)
    late = named("thirty", 30, None, seen)
    result = (await one_call([late, no, plus]).run("go")).results[0]
    assert seen == ["ten", "twenty"]
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert "the hook `twenty`: no" in (result.error_message or "")
    assert RAN == []


@pytest.mark.proves("hook.order")
async def test_changes_chain_where_a_hook_in_between_does_not_apply() -> None:
    seen: list[str] = []
    double = named(
        "ten", 10, lambda c: modify({"arguments": {**c.arguments, "a": c.arguments["a"] * 2}}), seen
    )
    no = named("twenty", 20, block("no"), seen, when='name == "another"')
    more = named(
        "thirty",
        30,
        lambda c: modify({"arguments": {**c.arguments, "a": c.arguments["a"] + 1}}),
        seen,
    )
    assert (await one_call([more, no, double]).run("go")).results[0].data == 2 * 2 + 1 + 3
    assert seen == ["ten", "thirty"]


@pytest.mark.parametrize("change", [{"a": "many", "b": 1}, {"a": 1}, {"a": 1, "b": 2, "c": 3}])
async def test_changed_arguments_are_validated_again(change: dict[str, Any]) -> None:
    result = (await one_call([named("n", 1, modify({"arguments": change}), [])]).run("go")).results[
        0
    ]
    assert result.error_type is ErrorType.VALIDATION_FAILED
    assert RAN == []


async def test_changed_arguments_go_before_the_rules_again() -> None:
    move = named("n", 1, modify({"arguments": {"path": "secrets/x"}}), [])
    ours = one_call([move], "write", {"path": "a"}, allow=["write"], deny=["Edit(secrets/**)"])
    result = (await ours.run("go")).results[0]
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert RAN == []


async def _raises(call: ToolPre) -> None:
    raise RuntimeError("cannot tell")


async def _hangs(call: ToolPre) -> None:
    await asyncio.Event().wait()


async def _cancels(call: ToolPre) -> None:
    raise asyncio.CancelledError


def _exits(call: ToolPre) -> None:
    raise SystemExit(3)


BROKEN: list[Any] = [
    _raises,
    _hangs,
    _cancels,
    _exits,
    *(
        lambda call, answer=answer: answer
        for answer in (
            False,
            True,
            "allow",
            0,
            [],
            {},
            {"action": "alow"},
            {"action": "allow", "payload": {}},
            {"action": "modify"},
            {"action": "block", "reason": 7},
            modify({"name": "other"}),
            modify({"arguments": [1]}),
            modify({"argument": {}}),
            modify({"args": {"a": 1}, "arguments": {"a": 2}}),
            Action("delegate"),
            Action("deny"),  # type: ignore[arg-type]
        )
    ),
]


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda payload: RAN.append(1), 1),
        (lambda payload, occasion: RAN.append(2), 2),
        (lambda payload, occasion=None: RAN.append(1 + (occasion is not None)), 2),
        (lambda payload, occasion, more=3, **names: RAN.append(more - 1), 2),
        (lambda payload, *, more=1: RAN.append(more), 1),
        (lambda *values: RAN.append(len(values)), 2),
    ],
)
async def test_a_hook_is_given_the_payload_and_the_occasion_if_it_takes_it(
    function: Any, given: int
) -> None:
    await agent([says("done")], [hook("turn.start", name="odd")(function)]).run("go")
    assert [given] == RAN


@pytest.mark.parametrize(
    "function", [lambda: None, lambda a, b, c: None, lambda a, *, b: None, lambda **names: None]
)
def test_a_hook_that_could_not_be_called_is_refused_where_it_is_made(function: Any) -> None:
    with pytest.raises(ConfigError, match="the hook `odd` takes"):
        hook("turn.start", name="odd")(function)


@pytest.mark.proves("hook.fail-closed")
@pytest.mark.parametrize("function", BROKEN)
async def test_a_hook_that_cannot_be_asked_blocks(function: Any) -> None:
    broken = hook("tool.pre", name="guard", timeout=0.05)(function)
    result = (await one_call([broken]).run("go")).results[0]
    assert result.error_type is ErrorType.PERMISSION_DENIED
    assert "the hook `guard`: it failed" in (result.error_message or "")
    assert RAN == []


@pytest.mark.proves("hook.fail-closed")
@pytest.mark.parametrize("function", BROKEN)
async def test_a_broken_hook_lets_pass_only_where_that_is_written_and_is_reported(
    function: Any,
) -> None:
    reported: list[Failed] = []

    @hook("error")
    async def report(failed: Failed) -> None:
        reported.append(failed)

    broken = hook("tool.pre", name="guard", timeout=0.05, on_error="allow")(function)
    assert (await one_call([broken, report]).run("go")).results[0].data == 5
    assert [(f.where, f.hook) for f in reported] == [("hook", "guard")]


async def test_a_condition_that_cannot_be_decided_blocks() -> None:
    guard = named("guard", 1, None, [], when='arguments["command"] == "x"')
    result = (await one_call([guard]).run("go")).results[0]
    assert "there is no key 'command'" in (result.error_message or "")
    assert RAN == []


async def test_a_hook_can_have_a_person_asked_about_what_the_rules_allow() -> None:
    for choice, ran in (("once", [(2, 3)]), ("deny", [])):
        RAN.clear()
        approver = RecordingApprover([choice])  # type: ignore[list-item]
        ours = one_call([named("careful", 1, ask("is it wanted?"), [])], approver=approver)
        result = (await ours.run("go")).results[0]
        assert ran == RAN
        assert result.success is bool(ran)
        assert [r.reason for r in approver.requests] == ["the hook `careful`: is it wanted?"]


async def test_a_later_block_wins_over_a_question_and_nobody_is_asked() -> None:
    approver = RecordingApprover([])
    hooks = [named("a", 1, ask("?"), []), named("b", 2, block("no"), [])]
    assert not (await one_call(hooks, approver=approver).run("go")).results[0].success
    assert approver.requests == []


async def test_a_question_about_changed_arguments_shows_what_would_run() -> None:
    approver = RecordingApprover(["once"])
    change = Action("ask", "so?", payload={"arguments": {"a": 10, "b": 1}})
    assert (await one_call([named("n", 1, change, [])], approver=approver).run("go")).results[
        0
    ].data == 11
    assert dict(approver.requests[0].values) == {"a": 10, "b": 1}


async def test_a_hook_that_allows_lifts_neither_a_deny_nor_a_question() -> None:
    for options in ({"deny": ["write"]}, {"ask": ["write"]}, {}):
        result = (
            await one_call([named("yes", 1, allow(), [])], "write", {"path": "a"}, **options).run(
                "x"
            )
        ).results[0]
        assert result.error_type is ErrorType.PERMISSION_DENIED
    assert RAN == []


async def test_results_are_changed_withheld_and_commented_on() -> None:
    told: list[ToolPost] = []

    @hook("tool.post", priority=1)
    async def look(result: ToolPost) -> Action:
        told.append(result)
        return allow(context="check the sign")

    @hook("tool.post", priority=2)
    async def redact(result: ToolPost) -> Action:
        return modify({"result": "[five]"})

    ours = one_call([look, redact])
    result = (await ours.run("go")).results[0]
    assert (result.data, result.notes) == ("[five]", ("[hook look] check the sign",))
    (notice,) = events_of(ours, Noticed)
    assert notice.text == "`redact` changed `result` of `tool.post`"
    assert (told[0].name, told[0].arguments, told[0].result) == ("add", {"a": 2, "b": 3}, 5)
    withheld = (
        await one_call([hook("tool.post", name="h")(lambda r: block("secret"))]).run("go")
    ).results[0]
    assert (withheld.success, withheld.data) == (False, None)
    assert "the call ran, its result was withheld by the hook `h`: secret" in (
        withheld.error_message or ""
    )


async def test_a_delegated_call_is_answered_by_the_other_agent_and_does_not_run() -> None:
    asked: list[Any] = []

    async def other(request: Any, identity: Any) -> str:
        asked.append((dict(request), identity.user))
        return "forty-two"

    over = hook("tool.pre", name="over")(lambda call: delegate({"task": "add", "agent": "adder"}))
    seen: list[DelegationPre] = []
    watch = hook("delegation.pre", name="watch")(seen.append)
    result = (await one_call([Hooks([over, watch], delegate=other)], user="ann").run("go")).results[
        0
    ]
    assert (result.data, RAN) == ("forty-two", [])
    assert asked == [({"task": "add", "agent": "adder"}, "ann")]
    assert [d.agent for d in seen] == ["adder"]
    alone = (await one_call([over]).run("go")).results[0]
    assert "there is no agent to delegate to" in (alone.error_message or "")
    no = hook("delegation.pre", name="no")(lambda d: block("not that"))
    blocked = (await one_call([Hooks([over, no], delegate=other)]).run("go")).results[0]
    assert "not that" in (blocked.error_message or "")
    assert len(asked) == 1


async def test_nothing_is_delegated_before_the_person_has_said_yes_and_then_once() -> None:
    done: list[str] = []

    async def other(request: Any, identity: Any) -> str:
        done.append("x")
        return "there"

    over = hook("tool.pre", priority=2, name="over")(lambda call: delegate({"task": "add"}))
    hooks = [Hooks([named("careful", 1, ask("?"), []), over], delegate=other)]
    for choice, times in (("deny", 0), ("once", 1)):
        done.clear()
        await one_call(hooks, approver=RecordingApprover([choice])).run("go")  # type: ignore[list-item]
        assert len(done) == times


async def test_the_same_hooks_stand_before_direct_and_nested_calls() -> None:
    @tool(side_effect="none")
    async def outer(context: Context) -> str:
        """Call another tool."""
        assert context.call is not None
        return (await context.call("add", {"a": 1, "b": 1})).error_message or "ran"

    no = hook("tool.pre", when='name == "add"', name="no")(lambda call: block("not here"))
    session = agent([], [no], [add, outer]).session()
    assert "not here" in ((await session.call("add", a=1, b=1)).error_message or "")
    assert "not here" in (await session.call("outer")).data
    await session.close()
    assert RAN == []


# ---- sessions and turns


async def test_a_session_starts_once_and_ends_once() -> None:
    seen: list[str] = []
    watch = hook("session.start", "session.end")(lambda payload: seen.append(payload.event))
    ours = agent([says("a"), says("b")], [watch])
    session = ours.session()
    await session.run("1")
    await session.run("2")
    await session.close()
    assert seen == ["session.start", "session.end"]


async def test_a_session_that_a_hook_refuses_runs_nothing_and_asks_no_model() -> None:
    ours = agent(
        [says("never")], [hook("session.start", name="closed")(lambda s: block("at night"))]
    )
    for attempt in (ours.run("x"), ours.session().call("add", a=1, b=1)):
        with pytest.raises(HookBlocked, match="the hook `closed`: at night"):
            await attempt
    assert ours.model_client.asks == []  # type: ignore[attr-defined]
    assert RAN == []


async def test_why_a_session_was_refused_is_journaled_while_it_is_still_open() -> None:
    ours = agent(
        [says("never")], [hook("session.start", name="closed")(lambda s: block("at night"))]
    )
    session = ours.session()
    with pytest.raises(HookBlocked):
        await session.run("x")
    written = [record.event for record in session.driver.log.journal.records(session.id)]
    assert "at night" in str(written)


async def test_a_message_is_changed_or_refused_before_anything_is_done_with_it() -> None:
    @hook("turn.start")
    async def polite(turn: TurnStart) -> Action:
        return (
            block("no shouting")
            if turn.text.isupper()
            else modify({"text": turn.text + ", please"})
        )

    ours = agent([says("hello")], [polite])
    session = ours.session()
    await session.run("say hello")
    assert session.driver.machine.history[0] == UserMessage("say hello, please")
    with pytest.raises(HookBlocked, match="no shouting") as refused:
        await session.run("SAY HELLO")
    assert (refused.value.code, refused.value.exit_code) == ("hook_blocked", 4)
    assert len(session.driver.machine.history) == 2
    await session.close()


async def test_the_end_of_a_turn_can_send_the_model_on_a_bounded_number_of_times() -> None:
    ends: list[int] = []

    @hook("turn.end", name="tests")
    async def not_yet(turn: TurnEnd) -> Action:
        ends.append(turn.continued)
        return block("the tests fail")

    ours = agent([says(f"try {n}") for n in range(9)], [not_yet])
    result = await ours.run("fix it")
    assert ends == list(range(MAX_CONTINUATIONS + 1))
    assert result.text == f"try {MAX_CONTINUATIONS}"
    history = ours.model_client.histories[1]  # type: ignore[attr-defined]
    assert history[2] == UserMessage("[the hook `tests`: the tests fail]")


async def test_a_broken_hook_where_nothing_is_left_to_stop_is_a_notice() -> None:
    notices: list[str] = []
    broken = hook("turn.end", "session.end", "error", name="bad")(lambda payload: 1 / 0)
    ours = agent([says("fine")], [broken])
    session = ours.session()
    session.observe(lambda item: notices.append(getattr(item, "text", "")))
    assert (await session.run("x")).text == "fine"
    await session.close()
    assert sum("`bad` is broken: ZeroDivisionError" in text for text in notices) >= 2


async def test_a_failed_run_is_told_to_the_hooks_on_errors() -> None:
    seen: list[Failed] = []
    ours = agent(
        [fails(ProviderError("gone", code="unreachable"))],
        [hook("error", name="watch")(seen.append)],
    )
    with pytest.raises(ProviderError):
        await ours.run("x")
    assert [(f.where, f.code) for f in seen] == [("run", "unreachable")]


# ---- questions and answers


async def test_a_question_can_be_blocked_and_the_history_stays_valid() -> None:
    ours = agent([says("never")], [hook("completion.pre", name="q")(lambda c: block("too late"))])
    session = ours.session()
    with pytest.raises(ProviderError, match="the hook `q`: too late") as failed:
        await session.run("x")
    assert failed.value.code == "hook_blocked"
    assert ours.model_client.asks == []  # type: ignore[attr-defined]
    assert isinstance(session.driver.machine.history[-1], AssistantMessage)
    await session.close()


async def test_a_changed_question_is_what_the_model_reads_and_the_history_stays() -> None:
    @hook("completion.pre")
    async def hide(question: CompletionPre) -> Action:
        shown = [dict(m) for m in question.messages]
        shown[0]["content"] = shown[0]["content"].replace("4711", "[number]")
        return modify({"messages": [*shown, {"role": "user", "content": "Answer briefly."}]})

    ours = one_call([hide])
    session = ours.session()
    await session.run("my number is 4711")
    for asked in ours.model_client.histories:  # type: ignore[attr-defined]
        assert asked[0] == UserMessage("my number is [number]")
        assert asked[-1] == UserMessage("Answer briefly.")
    assert session.driver.machine.history[0] == UserMessage("my number is 4711")
    assert UserMessage("Answer briefly.") not in session.driver.machine.history
    await session.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: [],
        lambda m: m[:-1],
        lambda m: m[1:],
        lambda m: [*m[:1], *m[2:]],
        lambda m: [m[1], m[0], *m[2:]],
        lambda m: [*m, {"role": "tool", "content": "x"}],
        lambda m: [*m, {"role": "user", "content": "x", "name": "y"}],
        lambda m: [*m[:-1], {**m[-1], "tool_call_id": "other"}],
        lambda m: [{**m[0], "role": "assistant"}, *m[1:]],
        lambda m: [{**m[0], "index": True}, *m[1:]],
        lambda m: [{**m[0], "content": 7}, *m[1:]],
        lambda m: [*m, "words"],
    ],
)
async def test_a_question_that_a_hook_makes_invalid_is_not_asked(spoil: Any) -> None:
    @hook("completion.pre", when="turn == 2")
    async def spoiled(question: CompletionPre) -> Action:
        return modify({"messages": spoil([dict(m) for m in question.messages])})

    ours = one_call([spoiled])
    with pytest.raises(ProviderError) as failed:
        await ours.run("go")
    assert failed.value.code == "hook_broken"
    assert len(ours.model_client.asks) == 1  # type: ignore[attr-defined]


async def test_what_a_hook_tells_before_a_question_is_read_with_it_and_survives_a_restart(
    tmp_path: Any,
) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    tell = hook("completion.pre", name="clock")(lambda q: allow(context=f"turn {q.turn}"))
    ours = one_call([tell], journal=journal)
    session = ours.session()
    await session.run("go")
    first, second = ours.model_client.histories  # type: ignore[attr-defined]
    assert first[-1].text == 'go\n<notice source="hook:clock">\nturn 1\n</notice>'
    assert isinstance(second[-1], ToolMessage)
    assert second[-1].text == '5\n<notice source="hook:clock">\nturn 2\n</notice>'
    live = list(session.driver.machine.history)
    await session.close()
    again = agent([], [], journal=journal).resume(session.id)
    assert again.driver.machine.history == live
    await again.close()
    assert all(notice.at_once for notice in events_of(ours, NoticeGiven))


async def test_a_withheld_answer_with_calls_gives_each_call_its_one_result() -> None:
    @hook("completion.post", name="judge")
    async def judge(answer: CompletionPost) -> Action | None:
        return block("not these") if answer.calls else None

    steps = [
        calls(("add", {"a": 1, "b": 1}), ("write", {"path": "x"}), text="my secret plan"),
        says("sorry"),
    ]
    ours = agent(steps, [judge], allow=["write"])
    result = await ours.run("go")
    assert (result.text, RAN) == ("sorry", [])
    assert [r.error_type for r in result.results] == [ErrorType.PERMISSION_DENIED] * 2
    assert len(events_of(ours, ToolAnswered)) == 0
    history = ours.model_client.histories[-1]  # type: ignore[attr-defined]
    assert [type(m) for m in history] == [UserMessage, AssistantMessage, ToolMessage, ToolMessage]
    assert not any("secret plan" in str(m) for m in history)
    assert not any("secret plan" in str(e) for e in events_of(ours, ModelAnswered))


async def test_an_answer_is_shown_to_nobody_before_the_hooks_have_seen_it() -> None:
    change = hook("completion.post")(
        lambda answer: modify({"text": answer.text.replace("4711", "[number]")})
    )
    shown = [
        i.text
        async for i in agent([says("It is 4711.")], [change]).stream("x")
        if isinstance(i, TextDelta)
    ]
    assert "".join(shown) == "It is [number]."
    withheld = agent(
        [says("It is 4711.")], [hook("completion.post", name="no")(lambda a: block("private"))]
    )
    seen: list[Any] = []
    with pytest.raises(ProviderError, match="private"):
        async for item in withheld.stream("x"):
            seen.append(item)
    assert not any("4711" in str(item) for item in seen)


async def test_a_hook_takes_calls_out_of_an_answer_and_cannot_put_others_in() -> None:
    def only_first(answer: CompletionPost) -> Any:
        return modify({"calls": answer.calls[:1]}) if answer.calls else None

    steps = [calls(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2})), says("ok")]
    assert [
        r.data for r in (await agent(steps, [hook("completion.post")(only_first)]).run("x")).results
    ] == [2]
    other = hook("completion.post")(
        lambda a: modify({"calls": [{"id": "", "name": "write", "arguments": "{}"}]})
    )
    with pytest.raises(ProviderError, match="into others"):
        await agent(steps, [other], allow=["write"]).run("x")
    no_list = hook("completion.post")(lambda a: modify({"calls": {}}))
    with pytest.raises(ProviderError, match="`calls`"):
        await agent(steps, [no_list]).run("x")
    assert RAN == [(1, 1)]


async def test_a_hook_can_end_the_run_after_the_round() -> None:
    enough = hook("tool.pre", name="cap")(lambda call: Action("block", "enough", stop="budget"))
    ours = one_call([enough])
    with pytest.raises(ProviderError, match="stopped by the hook `cap`: budget") as stopped:
        await ours.run("x")
    assert stopped.value.code == "hook_stopped"
    assert len(ours.model_client.asks) == 1  # type: ignore[attr-defined]


# ---- custom events, definitions


async def test_a_tool_tells_of_its_own_events_and_learns_what_the_hooks_say() -> None:
    @tool(side_effect="none")
    async def deploy(context: Context) -> str:
        """Deploy."""
        outcome = await emit_event(context, "custom.deploy", {"to": "live"})
        return outcome.blocked or str(getattr(outcome.payload, "data", ""))

    change = hook("custom.*")(lambda event: modify({"data": {**event.data, "by": event.name}}))
    ran = await agent([], [change], [deploy]).session().call("deploy")
    assert ran.data == "{'to': 'live', 'by': 'custom.deploy'}"
    no = hook("custom.deploy", name="no", when='data["to"] == "live"')(
        lambda event: block("frozen")
    )
    assert (
        await agent([], [no], [deploy]).session().call("deploy")
    ).data == "the hook `no`: frozen"
    assert (await agent([], [], [deploy]).session().call("deploy")).data == "{'to': 'live'}"
    with pytest.raises(ConfigError, match="custom"):
        await emit_event(Context(None, "c"), "tool.pre")  # type: ignore[arg-type]


def test_a_hook_on_an_event_there_is_not_is_an_error_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"tool\.pres") as wrong:
        hook("tool.pres")(lambda call: None)
    assert "did you mean `tool.pre`?" in wrong.value.hint
    for bad in (
        {"events": ()},
        {"events": ("custom.",)},
        {"events": ("tool.pre",), "timeout": 0.0},
    ):
        with pytest.raises(ConfigError):
            hook(*bad.pop("events"), **bad)(lambda call: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        hook("tool.pre", when="name ==")(lambda call: None)
    with pytest.raises(ConfigError):
        hook("tool.pre")(lambda a, b, c: None)


async def test_hooks_of_the_old_seam_and_event_hooks_stand_in_one_row() -> None:
    seen: list[str] = []

    class Old:
        priority = 20

        async def before(self, tool: Any, values: Any, context: Any) -> Block | None:
            seen.append("old")
            return Block("by the old one")

        async def after(self, tool: Any, result: Any, context: Any) -> None:
            """Nothing."""

    result = (
        await one_call([named("late", 30, None, seen), Old(), named("early", 10, None, seen)]).run(
            "x"
        )
    ).results[0]
    assert seen == ["early", "old"]
    assert "by the old one" in (result.error_message or "")


async def test_what_a_hook_changes_in_place_changes_nothing_but_what_it_answers() -> None:
    def spoil(call: ToolPre) -> None:
        dict.clear(call.arguments)  # type: ignore[arg-type]

    def plus(call: ToolPre) -> Action:
        call.arguments["a"] += 1  # type: ignore[index]
        return modify({"arguments": call.arguments})

    assert (await one_call([hook("tool.pre")(spoil)]).run("x")).results[0].data == 5
    assert (await one_call([hook("tool.pre")(spoil), hook("tool.pre")(plus)]).run("x")).results[
        0
    ].data == 6
