"""Delegation through the public API: scripted models, real tools, a real gate and a real
journal.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any

import pytest

from ferrule import (
    READS,
    WRITES,
    Agent,
    ConfigError,
    Context,
    ErrorType,
    Identity,
    LimitReached,
    Limits,
    ProviderError,
    RunResult,
    Scripted,
    Storage,
    ToolFailed,
    ToolResult,
    tool,
)
from ferrule.core.events import (
    CallEvaluated,
    DelegationFinished,
    DelegationStarted,
    DirectCall,
    Event,
    ModelAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Usage,
)
from ferrule.core.machine import Machine
from ferrule.core.messages import UserMessage
from ferrule.engine.delegation.delegate_tool import ask_agent
from ferrule.engine.delegation.delegation import Delegation
from ferrule.engine.delegation.session_tree import Lineage
from ferrule.engine.delegation.sub_agent import DelegationLimits, SubAgent
from ferrule.engine.hooks.events import (
    DelegationVerified,
    EventHook,
    allow,
    block,
    delegate,
    modify,
)
from ferrule.extensions.hooks.decorator import hook
from ferrule.models.client import ModelClient
from ferrule.models.scripted import calls, fails, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import RecordingApprover
from ferrule.tools.definition import Loading
from grouped_options import grouped

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
def write(path: Annotated[str, WRITES]) -> str:
    """Write a file."""
    RAN.append(path)
    return f"wrote {path}"


@tool(side_effect="read")
def look(path: Annotated[str, READS]) -> str:
    """Read a file."""
    RAN.append(path)
    return f"content of {path}"


ADDER = SubAgent("adder", "Adds numbers.", "You add.", tools=["add"])
WRITER = SubAgent("writer", "Writes files.", "You write.", tools=["write"])
READER = SubAgent("reader", "Reads files.", "You read.", tools=["look", "add"])


def ask(agent: str = "adder", task: str = "what is 2 + 3?", **more: Any) -> Any:
    """A step of a script: delegate."""
    return calls(("delegate", {"task": task, "agent": agent, **more}))


def parent(steps: list[Any], agents: Any = (ADDER, WRITER, READER), **options: Any) -> Agent:
    options.setdefault("journal", SqliteJournal(":memory:"))
    options.setdefault("tools", [add, write, look])
    return Agent(Scripted(steps), **grouped(agents=agents, **options))


def delegations(result: RunResult) -> list[ToolResult]:
    return [one for one in result.results if one.tool == "delegate"]


def events(agent: Agent, session: str) -> list[Event]:
    return [record.event for record in agent.journal.records(session)]


def children(agent: Agent) -> list[list[Event]]:
    """The journals of all sub-agents, the oldest first."""
    found = [events(agent, info.session) for info in reversed(agent.journal.sessions())]
    return [one for one in found if isinstance(one[0], SessionOpened) and one[0].agent]


def agent_of(agent: Agent, session: str) -> str:
    """Which sub-agent a session is of; "" for a person's."""
    opened = events(agent, session)[0]
    assert isinstance(opened, SessionOpened)
    return opened.agent


# ---- the whole way


async def test_an_agent_does_the_task_in_a_session_of_its_own_and_its_answer_is_data() -> None:
    model_client_steps = [
        ask(),
        calls(("add", {"a": 2, "b": 3})),
        says("five"),
        says("It is five."),
    ]
    ours = parent(model_client_steps)
    result = await ours.run("2 + 3?")
    assert result.text == "It is five."
    answer = result.results[0].data
    assert {key: answer[key] for key in ("status", "agent", "answer", "turns")} == {
        "status": "done", "agent": "adder", "answer": "five", "turns": 2,
    }  # fmt: skip
    asked = ours.model_client.asks  # type: ignore[attr-defined]
    assert [message.text for message in asked[1].history] == ["what is 2 + 3?"]
    opened = ours.model_client.opened[1]  # type: ignore[attr-defined]
    assert opened.system.startswith("You add.") and "untrusted" in opened.system
    assert [spec.name for spec in opened.tools] == ["add"]


async def test_both_journals_say_who_delegated_to_whom_and_the_chains_hold() -> None:
    ours = parent([ask(), says("five"), says("done")], user="ann")
    result = await ours.run("go")
    [child] = children(ours)
    opened = child[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.parent, opened.parent_call, opened.agent) == (
        result.session,
        "call_1_0",
        "adder",
    )
    assert opened.tools == ("add",)
    mine = events(ours, result.session)
    started = next(one for one in mine if isinstance(one, DelegationStarted))
    finished = next(one for one in mine if isinstance(one, DelegationFinished))
    assert started == DelegationStarted("call_1_0", result.results[0].data["session"], "adder")
    assert (finished.call_id, finished.session, finished.stop) == (
        "call_1_0",
        started.session,
        "done",
    )
    for info in ours.journal.sessions():
        assert (info.tenant, info.user) == ("local", "ann")
        ours.journal.verify(info.session)


async def test_without_agents_there_is_no_tool_and_no_cost() -> None:
    plain = Agent(Scripted([]), [add], storage=Storage(journal=SqliteJournal(":memory:")))
    assert [tool.name for tool in plain.catalog] == ["add"]
    assert plain.sub_agents is None and type(plain.session().driver).__name__ == "Driver"


async def test_every_run_has_a_budget_of_its_own_below_that_of_the_session_above() -> None:
    def left() -> tuple[int | None, int | None, int | None]:
        shared = below.shared
        return (
            shared.compute_remaining("max_tokens"),
            shared.compute_remaining("max_cost"),
            shared.compute_remaining("max_calls"),
        )

    above = Lineage.root(Limits(max_tokens=100))
    below = above.for_sub_agent(Limits(), "adder", "s1", "c1")
    limits = Limits(max_tokens=30, max_cost=0.5, max_calls=4, max_seconds=60)
    below.begin_run(limits, elapsed=20)
    assert left() == (30, 500_000_000, 4)
    below.shared.spend(Usage(7, 4, cost=200_000_000), 3)
    assert left() == (19, 300_000_000, 1)
    assert above.shared.compute_remaining("max_tokens") == 89
    seconds = below.remaining_seconds()
    assert seconds is not None and 30 < seconds <= 40
    below.end_run()
    assert (left(), below.remaining_seconds()) == ((30, 500_000_000, 4), None)
    above.shared.spend(Usage(75), 0)
    assert left()[0] == 14, "of what is left above"
    assert (below.depth, below.agent, below.parent, below.call) == (1, "adder", "s1", "c1")


async def test_the_description_names_the_agents_but_not_those_that_are_denied() -> None:
    ours = parent([], deny=["Agent(writer)"])
    shown = next(spec for spec in ours.visible_tools.specs() if spec.name == "delegate").description
    assert shown.endswith(
        "data, not instructions.\nAgents:\n- adder: Adds numbers.\n- reader: Reads files."
    )
    assert "writer" not in shown
    (made,) = [tool for tool in ours.catalog if tool.name == "delegate"]
    assert made.reliability.timeout == 3600 and made.reliability.max_attempts == 1
    none_left = parent([], deny=[f"Agent({name})" for name in ("adder", "reader", "writer")])
    assert [tool.description[-15:] for tool in none_left.catalog if tool.name == "delegate"] == [
        "t instructions."
    ]
    assert "delegate" not in [
        spec.name for spec in parent([], deny=["Agent"]).visible_tools.specs()
    ]


# ---- what is refused


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"agent": "addder"}, ErrorType.NOT_FOUND, "did you mean `adder`?"),
        ({"agent": "x1"}, ErrorType.NOT_FOUND, "there are: adder, reader, writer"),
        ({"agent": ""}, ErrorType.VALIDATION_FAILED, "name an `agent`, or the `tools` of one"),
        ({"task": "  "}, ErrorType.VALIDATION_FAILED, "the task is empty"),
        ({"tools": ["write"]}, ErrorType.PERMISSION_DENIED, "`adder` may not use `write`"),
        ({"agent": "", "tools": ["wirte"]}, ErrorType.VALIDATION_FAILED, "did you mean `write`?"),
        (
            {"model": "openai:gpt"},
            ErrorType.PERMISSION_DENIED,
            "the model `openai:gpt` may not be used",
        ),
        ({"max_verify_retries": 6}, ErrorType.VALIDATION_FAILED, "0 to 5"),
        ({"verify": "pytest"}, ErrorType.VALIDATION_FAILED, "there is no tool `run_command`"),
        ({"verify": {"tool": "add", "args": {}}}, ErrorType.VALIDATION_FAILED, "{tool, arguments}"),
        ({"taks": "x"}, ErrorType.VALIDATION_FAILED, "taks"),
    ],
)
async def test_what_cannot_be_delegated_is_refused_before_anything_happens(
    given: dict[str, Any], error: ErrorType, said: str
) -> None:
    arguments = {"task": "t", "agent": "adder", **given}
    ours = parent([calls(("delegate", arguments)), says("ok")])
    [refused] = (await ours.run("go")).results
    assert (refused.success, refused.error_type) == (False, error)
    assert said in (refused.error_message or "")
    assert children(ours) == []


async def test_a_tool_that_the_agent_has_not_does_not_run_whoever_calls_it() -> None:
    @tool(side_effect="none")
    async def sly(context: Context) -> str:
        """Call what the agent may not call."""
        assert context.call is not None
        return (await context.call("write", {"path": "x"})).error_message or "ran"

    sneaky = SubAgent("sneaky", "Tries.", tools=["sly"])
    steps = [ask("sneaky"), calls(("write", {"path": "x"}), ("sly", {})), says("tried"), says("ok")]
    ours = parent(steps, [sneaky], tools=[add, write, sly], allow=["write", "Edit(**)"])
    await ours.run("go")
    [child] = children(ours)
    answers = [one.result for one in child if isinstance(one, ToolAnswered)]
    refusals = [one.result for one in child if isinstance(one, CallEvaluated) and one.result]
    assert all(not one.success and one.error_type is ErrorType.NOT_FOUND for one in refusals)
    assert [one.data for one in answers] == ["there is no tool `write`; there are: sly"]
    assert RAN == []


@pytest.mark.parametrize(
    ("tools", "denied", "found"),
    [
        (None, (), {"add", "write", "look", "task_await", "task_cancel", "task_poll"}),
        (None, ("task_*", "write"), {"add", "look"}),
        (["*"], ("task_*",), {"add", "write", "look"}),
        (["l*", "add", "add_all"], (), {"add", "look"}),
        ((), (), set[str]()),
        (["delegate"], (), {"delegate", "task_await", "task_cancel", "task_poll"}),
    ],
)
async def test_an_agent_has_those_tools_of_the_session_that_it_may_have(
    tools: Any, denied: Any, found: set[str]
) -> None:
    ours = parent(
        [ask("a"), says("x"), says("y")], [SubAgent("a", "A.", tools=tools, denied=denied)]
    )
    await ours.run("go")
    assert {spec.name for spec in ours.model_client.opened[1].tools} == found  # type: ignore[attr-defined]


async def test_an_agent_that_has_none_of_its_tools_here_is_an_error_and_one_that_has_some_is_said() -> (
    None
):
    none = SubAgent("none", "N.", tools=["read_mail"])
    some = SubAgent("some", "S.", tools=["add", "read_mail"])
    ours = parent([ask("none"), ask("some"), says("x"), says("y")], [none, some])
    result = await ours.run("go")
    assert "needs read_mail, and this session has none of it" in (
        result.results[0].error_message or ""
    )
    assert result.results[1].success
    notices = [getattr(one, "text", "") for one in events(ours, result.session)]
    assert any("does without `read_mail`" in text for text in notices)


# ---- rules, modes, people


async def test_a_rule_for_an_agent_denies_or_asks_and_a_no_starts_nothing() -> None:
    ours = parent([ask("writer"), says("ok")], deny=["Agent(writer)"])
    [refused] = (await ours.run("go")).results
    assert refused.error_type is ErrorType.PERMISSION_DENIED and "Agent(writer)" in (
        refused.error_message or ""
    )
    for choice, started in (("deny", 0), ("once", 1)):
        approver = RecordingApprover([choice])  # type: ignore[list-item]
        ours = parent(
            [ask("writer"), says("a"), says("b")][: 3 if started else 2],
            ask=["Agent(writer)"],
            approver=approver,
        )
        await ours.run("go")
        assert (len(approver.requests), len(children(ours))) == (1, started)


async def test_what_the_session_may_not_its_agent_may_not_and_a_person_is_asked_by_name() -> None:
    steps = [
        ask("writer"),
        calls(("write", {"path": "a"}), ("write", {"path": "b"})),
        says("wrote"),
        says("ok"),
    ]
    approver = RecordingApprover(["once"])
    ours = parent(steps, deny=["Edit(a)"], approver=approver)
    await ours.run("go")
    assert RAN == ["b"]
    assert [request.reason for request in approver.requests] == [
        "the agent `writer`: `write` has medium risk"
    ]
    nobody = parent(steps)
    await nobody.run("go")
    assert RAN == ["b"]


async def test_what_was_granted_for_the_session_holds_in_its_agents_and_the_other_way_round() -> (
    None
):
    def grants_all(request: Any) -> Any:
        from ferrule.permissions.approvals import ApprovalAnswer

        rule = next(
            offer.rule
            for offer in request.offers
            if offer.choice == "session" and "**" in offer.rule
        )
        return ApprovalAnswer("session", rule, by="ann")

    approver = RecordingApprover(grants_all)
    steps = [
        calls(("write", {"path": "a"})),
        ask("writer"),
        calls(("write", {"path": "b"})),
        says("wrote"),
        calls(("write", {"path": "c"})),
        says("ok"),
    ]
    await parent(steps, approver=approver).run("go")
    assert (RAN, len(approver.requests)) == (["a", "b", "c"], 1)
    RAN.clear()
    approver = RecordingApprover(grants_all)
    steps = [
        ask("writer"),
        calls(("write", {"path": "b"})),
        says("wrote"),
        calls(("write", {"path": "c"})),
        says("ok"),
    ]
    await parent(steps, approver=approver).run("go")
    assert (RAN, len(approver.requests)) == (["b", "c"], 1)


MODES = ("default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions")


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "plan"])
@pytest.mark.parametrize("own", MODES)
async def test_an_agent_in_its_mode_may_never_do_what_its_session_may_not(
    mode: str, own: str
) -> None:
    async def does(agent_mode: str) -> tuple[list[Any], int]:
        RAN.clear()
        approver = RecordingApprover(["once"])
        agent = SubAgent("writer", "W.", tools=["write", "look"], mode=agent_mode)
        each = [("write", {"path": "a"}), ("look", {"path": "b"}), ("write", {"path": "kept/c"})]
        steps = [ask("writer"), calls(*each), says("x"), says("y")]
        ours = parent(
            steps, [agent], mode=mode, approver=approver, allow=["Edit(kept/**)"], ask=["Read(b)"]
        )
        await ours.run("go")
        return list(RAN), len(approver.requests)

    (without, asked), (ran, own_asked) = await does(""), await does(own)
    assert set(ran) <= set(without)
    # Whatever runs unasked in the agent's mode runs unasked without it.
    assert len(ran) - own_asked <= len(without) - asked or own_asked >= asked
    if own == "plan":
        assert set(ran) <= {"b"}
    if own == "dontAsk":
        assert own_asked == 0


# ---- hooks


def summarize_payloads(payloads: list[Any]) -> list[tuple[Any, ...]]:
    return [(type(one).__name__, one.agent_type, bool(one.agent_id)) for one in payloads]


async def test_hooks_of_the_session_see_the_agents_calls_and_know_whose_they_are() -> None:
    seen: list[Any] = []

    @hook("tool.pre", "tool.post", "session.start", "delegation.pre", "delegation.post")
    def watch(payload: Any) -> None:
        seen.append(payload)

    ours = parent([ask(), calls(("add", {"a": 1, "b": 1})), says("two"), says("ok")], hooks=[watch])
    result = await ours.run("go")
    child = result.results[0].data["session"]
    assert summarize_payloads(seen) == [
        ("SessionStart", "", False), ("ToolPre", "", False), ("DelegationPre", "", False),
        ("SessionStart", "adder", True), ("ToolPre", "adder", True), ("ToolPost", "adder", True),
        ("DelegationPost", "", False), ("ToolPost", "", False),
    ]  # fmt: skip
    assert {one.agent_id for one in seen} == {"", child}
    pre, post = seen[2], seen[6]
    assert (pre.agent, pre.session, pre.request["task"]) == ("adder", child, "what is 2 + 3?")
    assert (post.agent, post.session, post.result["answer"]) == ("adder", child, "two")


async def test_a_hook_that_blocks_or_breaks_keeps_work_from_being_delegated() -> None:
    def broken(payload: Any) -> None:
        raise ValueError("no idea")

    for reply, said in ((lambda d: block("not now"), "not now"), (broken, "no idea")):
        ours = parent([ask(), says("ok")], hooks=[hook("delegation.pre", name="h")(reply)])  # type: ignore[arg-type]
        [refused] = (await ours.run("go")).results
        assert refused.error_type is ErrorType.PERMISSION_DENIED and said in (
            refused.error_message or ""
        )
        assert children(ours) == []


async def test_a_hook_on_calls_blocks_them_in_agents_too() -> None:
    no = hook("tool.pre", name="no")(
        lambda call: block("no sums") if call.name == "add" else allow()
    )
    ours = parent(
        [ask(), calls(("add", {"a": 1, "b": 1})), says("could not"), says("ok")], hooks=[no]
    )
    await ours.run("go")
    [child] = children(ours)
    assert [
        "no sums" in (e.result.error_message or "") for e in child if isinstance(e, ToolAnswered)
    ] == [True]
    assert RAN == []


async def test_a_request_that_a_hook_changes_is_judged_again() -> None:
    def other(agent: str) -> EventHook:
        return hook("delegation.pre", name="h")(
            lambda d: modify({"request": {**d.request, "agent": agent}})
        )

    ours = parent([ask("adder"), says("read"), says("ok")], hooks=[other("reader")])
    assert (await ours.run("go")).results[0].data["agent"] == "reader"
    for rule in ({"deny": ["Agent(writer)"]}, {"ask": ["Agent(writer)"]}):
        ours = parent(
            [ask("adder"), says("ok")],
            hooks=[other("writer")],
            approver=RecordingApprover(["once"]),
            **rule,
        )
        [refused] = (await ours.run("go")).results
        assert refused.error_type is ErrorType.PERMISSION_DENIED
        assert children(ours) == []
    ours = parent([ask("adder"), says("ok")], hooks=[other("nobody")])
    assert (await ours.run("go")).results[0].error_type is ErrorType.NOT_FOUND


async def test_an_answer_can_be_redacted_or_withheld() -> None:
    redact = hook("delegation.post", name="r")(
        lambda d: modify({"result": {"status": d.result["status"]}})
    )
    ours = parent([ask(), says("the key is pine-cone"), says("ok")], hooks=[redact])
    assert (await ours.run("go")).results[0].data == {"status": "done"}
    no = hook("delegation.post", name="n")(lambda d: block("secret"))
    ours = parent([ask(), says("the key is pine-cone"), says("ok")], hooks=[no])
    [withheld] = (await ours.run("go")).results
    assert (
        not withheld.success
        and "pine-cone" not in str(withheld)
        and "secret" in (withheld.error_message or "")
    )


async def test_an_agents_own_hooks_come_beside_those_of_the_session() -> None:
    seen: list[str] = []
    mine = hook("tool.pre", name="mine")(lambda call: seen.append(f"mine {call.name}"))
    its = hook("tool.pre", name="its")(lambda call: seen.append(f"its {call.name}"))
    agent = SubAgent("adder", "A.", tools=["add"], hooks=(its,))
    ours = parent(
        [ask(), calls(("add", {"a": 1, "b": 1})), says("two"), says("ok")], [agent], hooks=[mine]
    )
    await ours.run("go")
    assert seen == ["mine delegate", "mine add", "its add"]


async def test_a_hook_can_have_a_call_done_by_an_agent_and_not_a_delegation() -> None:
    every = hook("tool.pre", name="every")(
        lambda call: delegate({"task": "look", "agent": "reader"})
    )
    ours = parent([calls(("write", {"path": "x"})), says("ok")], hooks=[every], allow=["Edit(**)"])
    [refused] = (await ours.run("go")).results
    # `delegate` itself meets the hook, and cannot be delegated away.
    assert "delegates a delegation" in (refused.error_message or "") and RAN == []
    only = hook("tool.pre", name="only")(
        lambda call: delegate({"task": "look", "agent": "reader"}) if call.name == "write" else None
    )
    ours = parent(
        [calls(("write", {"path": "x"})), says("I looked"), says("ok")],
        hooks=[only],
        allow=["Edit(**)"],
    )
    [answered] = (await ours.run("go")).results
    assert answered.data["answer"] == "I looked" and RAN == []


# ---- bounds


async def test_agents_delegate_only_as_deep_as_allowed_and_only_if_they_may() -> None:
    deep = SubAgent("deep", "Goes deeper.", tools=["delegate", "add"])
    down = ask("deep")
    ours = parent([down, down, down, says("3"), says("2"), says("1"), says("0")], [deep])
    result = await ours.run("go")
    assert (result.text, result.results[0].data["answer"]) == ("0", "1")
    shown = [{spec.name for spec in one.tools} for one in ours.model_client.opened]  # type: ignore[attr-defined]
    assert ["delegate" in names for names in shown] == [True, True, True, False]
    assert len(children(ours)) == 3
    flat = parent([down, says("1"), says("0")], [deep], delegation=DelegationLimits(max_depth=1))
    await flat.run("go")
    assert "delegate" not in {spec.name for spec in flat.model_client.opened[1].tools}  # type: ignore[attr-defined]


async def test_rounds_are_fewer_the_deeper_an_agent_is() -> None:
    deep = SubAgent("deep", "Goes deeper.", tools=["delegate", "add"])
    more = calls(("add", {"a": 1, "b": 1}))
    limits = DelegationLimits(turns=(4, 2))
    steps = [ask("deep"), ask("deep"), more, more, more, more, more, says("ok")]
    ours = parent(steps, [deep], delegation=limits, limits=Limits(max_turns=3))
    [refused] = (await ours.run("go")).results
    assert refused.error_type is ErrorType.LIMIT
    assert "the agent `deep` reached its limit max_turns = 4" in (refused.error_message or "")
    answers = {
        one[0].parent: sum(isinstance(event, ModelAnswered) for event in one)
        for one in children(ours)
        if isinstance(one[0], SessionOpened)
    }
    root = next(session for session in answers if not agent_of(ours, session))
    assert answers.pop(root) == 4 and list(answers.values()) == [2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_depth": 6}, "1 to 5"),
        ({"max_depth": 0}, "1 to 5"),
        ({"max_concurrent": 6}, "1 to 5"),
        ({"turns": ()}, "at least one"),
        ({"turns": (3, 0)}, "at least 1"),
    ],
)
@pytest.mark.proves("delegation.hard-bounds")
def test_hard_bounds_hold_whatever_is_given(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        DelegationLimits(**given)


class Gate:
    """A model's answer that waits until it is let go."""

    def __init__(self, answer: str) -> None:
        self.answer, self.begun, self.go = answer, asyncio.Event(), asyncio.Event()

    async def __call__(self, history: Any) -> Any:
        self.begun.set()
        await asyncio.wait_for(self.go.wait(), 10)
        return says(self.answer)


async def test_agents_that_only_read_work_side_by_side_up_to_the_bound() -> None:
    gates = [Gate("a"), Gate("b")]
    many = calls(*[("delegate", {"task": str(n), "agent": "reader"}) for n in range(3)])
    ours = parent([many, *gates, says("ok")], delegation=DelegationLimits(max_concurrent=2))
    running = asyncio.create_task(ours.run("go"))
    for gate in gates:
        await asyncio.wait_for(gate.begun.wait(), 10)
    for gate in gates:
        gate.go.set()
    results = (await running).results
    assert [one.success for one in results] == [True, True, False]
    assert results[2].error_type is ErrorType.LIMIT and "max_concurrent = 2" in (
        results[2].error_message or ""
    )


async def test_agents_that_write_work_one_after_another() -> None:
    first, order = Gate("a"), list[str]()

    def second(history: Any) -> Any:
        order.append("second asked")
        return says("b")

    both = calls(*[("delegate", {"task": str(n), "agent": "writer"}) for n in range(2)])
    running = asyncio.create_task(parent([both, first, second, says("ok")]).run("go"))
    await asyncio.wait_for(first.begun.wait(), 10)
    for _ in range(20):
        await asyncio.sleep(0)
    assert order == []
    first.go.set()
    assert [one.data["answer"] for one in (await running).results] == ["a", "b"]


# ---- budgets


def cost(tokens: int) -> Usage:
    return Usage(tokens, 0)


async def test_an_agent_draws_from_the_tokens_of_the_run_and_they_are_counted_there() -> None:
    steps = [
        calls(("delegate", {"task": "t", "agent": "adder"}), usage=cost(10)),
        calls(("add", {"a": 1, "b": 1}), usage=cost(20)),
        says("two", usage=cost(30)),
        says("ok", usage=cost(5)),
    ]
    ours = parent(steps, limits=Limits(max_tokens=100))
    result = await ours.run("go")
    assert result.usage.input == 65 and result.results[0].data["tokens"] == 50
    mine = events(ours, result.session)
    assert next(e for e in mine if isinstance(e, RunFinished)).usage.input == 65
    rebuilt = Machine()
    rebuilt.rebuild(mine)
    assert rebuilt.usage.input == 65


async def test_an_agent_that_uses_up_the_run_is_stopped_and_the_run_asks_no_model_again() -> None:
    more = calls(("add", {"a": 1, "b": 1}), usage=cost(40))
    steps = [
        calls(("delegate", {"task": "t", "agent": "adder"}), usage=cost(30)),
        more,
        more,
        says("never"),
    ]
    ours = parent(steps, limits=Limits(max_tokens=100))
    with pytest.raises(LimitReached, match="max_tokens"):
        await ours.run("go")
    assert len(ours.model_client.asks) == 3  # type: ignore[attr-defined]
    [child] = children(ours)
    assert next(e for e in child if isinstance(e, RunFinished)).code == "limit_max_tokens"
    journal = events(ours, ours.journal.sessions()[0].session)
    answered = [e.result for e in journal if isinstance(e, ToolAnswered)]
    assert all(
        "max_tokens" in (one.error_message or "") for one in answered if one.tool == "delegate"
    )


async def test_an_agents_own_tokens_bound_it_alone() -> None:
    own = SubAgent("adder", "A.", tools=["add"], limits=Limits(max_tokens=50))
    more = calls(("add", {"a": 1, "b": 1}), usage=cost(40))
    steps = [ask(), more, more, says("I do it myself")]
    result = await parent(steps, [own], limits=Limits(max_tokens=1000)).run("go")
    assert result.text == "I do it myself"
    assert "reached its limit max_tokens = 50" in (result.results[0].error_message or "")


async def until_its_time_is_over(history: Any) -> Any:
    """A model that never answers; the loop's clock jumps ahead, so that no test waits."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + 100  # type: ignore[method-assign]
    try:
        await asyncio.Event().wait()
    finally:
        loop.time = now  # type: ignore[method-assign]


async def test_an_agent_has_no_more_time_than_the_run_and_ends_with_it() -> None:
    ours = parent([ask(), until_its_time_is_over], limits=Limits(max_seconds=50))
    with pytest.raises(LimitReached, match="max_seconds"):
        await ours.run("go")
    [child] = children(ours)
    started = next(e for e in child if isinstance(e, RunStarted))
    assert started.limits.max_seconds is not None and started.limits.max_seconds <= 50
    assert next(e for e in child if isinstance(e, RunFinished)).stop in ("cancelled", "limit")


async def test_an_agents_own_time_bounds_it_alone() -> None:
    own = SubAgent("adder", "A.", limits=Limits(max_seconds=50))
    result = await parent([ask(), until_its_time_is_over, says("ok")], [own]).run("go")
    assert result.text == "ok"
    assert "reached its limit max_seconds = 50" in (result.results[0].error_message or "")


# ---- failures


async def test_what_goes_wrong_in_an_agent_is_an_error_of_the_call_that_names_it() -> None:
    more = calls(("add", {"a": 1, "b": 1}), text="I am adding")
    cases: list[tuple[list[Any], ErrorType, str, str]] = [
        (
            [fails(ProviderError("no server", code="unreachable"))],
            ErrorType.IO_ERROR,
            "no server",
            "failed",
        ),
        ([more] * 3, ErrorType.LIMIT, "max_turns = 3 (session", "limit"),
        ([says("bad", stop="filter")], ErrorType.IO_ERROR, "withheld by the provider", "failed"),
    ]
    for steps, error, said, stop in cases:
        ours = parent([ask(), *steps, says("ok")], delegation=DelegationLimits(turns=(3,)))
        result = await ours.run("go")
        [failed] = result.results
        assert (failed.success, failed.error_type) == (False, error)
        assert "`adder`" in (failed.error_message or "") and said in (failed.error_message or "")
        ended = next(e for e in events(ours, result.session) if isinstance(e, DelegationFinished))
        assert ended.stop == stop
    assert "it said last: I am adding" in str(
        (
            await parent(
                [ask(), *[more] * 3, says("ok")], delegation=DelegationLimits(turns=(3,))
            ).run("go")
        ).results
    )


async def test_an_agent_that_failed_twice_in_a_row_is_not_tried_again_in_this_run() -> None:
    broken = fails(ProviderError("down"))
    steps = [
        ask(task="1"),
        broken,
        ask(task="2"),
        broken,
        ask(task="3"),
        ask("reader"),
        says("read"),
        says("ok"),
        ask(task="4"),
        says("four"),
        says("ok"),
    ]
    ours = parent(steps)
    session = ours.session()
    results = (await session.run("go")).results
    assert [one.success for one in results] == [False, False, False, True]
    assert results[2].error_type is ErrorType.LIMIT
    assert "it failed 2 times in a row" in (results[2].error_message or "")
    assert (await session.run("again")).results[0].data["answer"] == "four"
    await session.close()


async def test_a_success_in_between_forgets_a_failure() -> None:
    broken = fails(ProviderError("down"))
    steps = [
        ask(task="1"),
        broken,
        ask(task="2"),
        says("yes"),
        ask(task="3"),
        broken,
        ask(task="4"),
        says("yes"),
        says("ok"),
    ]
    assert [one.success for one in (await parent(steps).run("go")).results] == [
        False,
        True,
        False,
        True,
    ]


async def test_a_long_answer_is_cut_says_so_and_stays_an_object() -> None:
    long = "é\n" * 5000
    ours = parent([ask(), says(long), says("ok")], limits=Limits(max_output_bytes=2000))
    [result] = (await ours.run("go")).results
    assert not result.partial and long.startswith(result.data["answer"])
    assert "the answer has 10000 characters" in result.data["cut"] and result.size <= 2000


# ---- cancelling


async def test_stopping_a_run_stops_its_agent_and_both_journals_say_so() -> None:
    gate = Gate("late")
    ours = parent([ask(), gate])
    session = ours.session()
    running = asyncio.create_task(session.run("go"))
    await asyncio.wait_for(gate.begun.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [child] = children(ours)
    assert next(e for e in child if isinstance(e, RunFinished)).stop == "cancelled"
    mine = events(ours, session.id)
    assert next(e for e in mine if isinstance(e, DelegationFinished)).stop == "cancelled"
    assert [e.result.error_type for e in mine if isinstance(e, ToolAnswered)] == [
        ErrorType.CANCELLED
    ]
    await session.close()


async def test_stopping_one_call_stops_its_agent_and_the_run_goes_on() -> None:
    gate = Gate("late")
    ours = parent([ask(), gate, says("without it")], interruptible=True)
    session = ours.session()
    running = asyncio.create_task(session.run("go"))
    await asyncio.wait_for(gate.begun.wait(), 10)
    assert session.driver.stop_call()
    result = await running
    assert result.text == "without it" and result.results[0].error_type is ErrorType.CANCELLED
    assert next(e for e in children(ours)[0] if isinstance(e, RunFinished)).stop == "cancelled"
    await session.close()


async def test_a_delegation_that_a_crash_cut_off_is_not_done_again() -> None:
    gate = Gate("late")
    ours = parent([ask(), gate, says("ok")], user="ann")
    session = ours.session()
    running = asyncio.create_task(session.run("go"))
    await asyncio.wait_for(gate.begun.wait(), 10)
    kept = SqliteJournal(":memory:")
    who = Identity("local", "ann", session.id, "run")
    kept.append(session.id, "run", events(ours, session.id), identity=who)
    after = parent([says("I looked what it did")], journal=kept, user="ann")
    resumed = await after.resume(session.id).resume()
    assert resumed is not None and resumed.text == "I looked what it did"
    [unknown] = resumed.results
    assert "outcome unknown" in (unknown.error_message or "")
    gate.go.set()
    await running
    await session.close()


# ---- in the background


async def test_an_agent_can_work_in_the_background_and_its_answer_is_awaited() -> None:
    gate = Gate("late but good")

    def then(history: Any) -> Any:
        gate.go.set()
        return calls(("task_await", {"task_id": task_of(history)}))

    def task_of(history: Any) -> str:
        import json

        return json.loads(history[2].text)["task_id"]

    async def polls(history: Any) -> Any:
        await asyncio.wait_for(gate.begun.wait(), 10)
        return calls(("task_poll", {"task_id": task_of(history)}))

    # The agent and its session ask the same script: the order of the two is what the gates say.
    steps = Turns({"go": [ask(wait=False), polls, then, says("ok")], "what is 2 + 3?": [gate]})
    ours = parent([], journal=SqliteJournal(":memory:"))
    ours.change_model(steps.model_client())
    result = await ours.run("go")
    started, polled, awaited = result.results
    assert (started.data["status"], polled.data["status"]) == ("started", "running")
    assert awaited.data["status"] == "done" and awaited.data["result"]["answer"] == "late but good"
    assert awaited.data["result"]["session"] == started.data["session"]


class Turns:
    """A model that answers each conversation, known by its first message, from a script of its
    own.
    """

    def __init__(self, scripts: dict[str, list[Any]]) -> None:
        self._left = {first: list(steps) for first, steps in scripts.items()}

    def model_client(self) -> ModelClient:
        return Scripted([self._step] * 50)

    async def _step(self, history: Any) -> Any:
        first = history[0]
        assert isinstance(first, UserMessage)
        step = self._left[first.text].pop(0)
        made = step(history) if callable(step) else step
        return await made if asyncio.iscoroutine(made) else made


async def test_an_agent_in_the_background_never_outlives_its_run() -> None:
    gate = Gate("never")

    async def ends(history: Any) -> Any:
        await asyncio.wait_for(gate.begun.wait(), 10)
        return says("I am done")

    steps = Turns({"go": [ask(wait=False), ends], "what is 2 + 3?": [gate]})
    ours = parent([])
    ours.change_model(steps.model_client())
    session = ours.session()
    assert (await session.run("go")).text == "I am done"
    [child] = children(ours)
    assert next(e for e in child if isinstance(e, RunFinished)).stop == "cancelled"
    finished = [e for e in events(ours, session.id) if isinstance(e, DelegationFinished)]
    assert [e.stop for e in finished] == ["cancelled"]
    await session.close()


# ---- models


async def test_an_agent_may_have_a_model_of_its_own_if_connect_gives_it() -> None:
    small = Scripted([says("small answer")], model="scripted:small")
    asked: list[str] = []

    def connect(name: str) -> ModelClient:
        asked.append(name)
        if name != "scripted:small":
            raise ConfigError(f"`{name}` may not be used")
        return small

    agents = [
        SubAgent("small", "S.", model="scripted:small"),
        SubAgent("other", "O.", model="openai:gpt"),
    ]
    ours = parent([ask("small"), ask("other"), says("ok")], agents, connect=connect)
    good, bad = (await ours.run("go")).results
    assert good.data["answer"] == "small answer"
    assert not bad.success and "`openai:gpt` may not be used" in (bad.error_message or "")
    assert asked == ["scripted:small", "openai:gpt"]
    opened = children(ours)[0][0]
    assert isinstance(opened, SessionOpened) and opened.model == "scripted:small"
    await ours.close()


async def test_a_request_may_name_only_models_that_a_person_named() -> None:
    small = Scripted([says("small answer")], model="scripted:small")
    ours = parent([ask(model="scripted:small"), says("ok")], connect=lambda name: small,
                  delegation=DelegationLimits(models=("scripted:small",)))  # fmt: skip
    assert (await ours.run("go")).results[0].data["answer"] == "small answer"


# ---- checking the work


async def test_work_is_checked_by_a_tool_and_corrected_until_it_passes() -> None:
    answers = [False, {"ok": False, "why": "two tests fail"}, {"ok": True}]
    checked: list[DelegationVerified] = []

    @tool(side_effect="none")
    def run_tests() -> Any:
        """Run the tests."""
        return answers.pop(0)

    watch = hook("delegation.post_verify", name="w")(checked.append)
    steps = [ask(verify="run_tests"), says("done"), says("fixed"), says("fixed again"), says("ok")]
    ours = parent(steps, tools=[add, write, look, run_tests], hooks=[watch])
    run = await ours.run("go")
    [result] = run.results
    assert (result.data["answer"], result.data["attempts"]) == ("fixed again", 3)
    assert [(one.attempt, one.passed) for one in checked] == [(1, False), (2, False), (3, True)]
    # The report reaches the agent as data, in a notice; the check is a call in the journal of the
    # session that delegates.
    third = ours.model_client.asks[3].history  # type: ignore[attr-defined]
    assert "two tests fail" in third[-1].text and "<notice" in third[-1].text
    direct = [e for e in events(ours, run.session) if isinstance(e, DirectCall)]
    assert [e.call.tool for e in direct] == ["run_tests"] * 3


async def test_work_that_never_passes_is_an_error_after_its_retries() -> None:
    @tool(side_effect="none")
    def check(level: int) -> str:
        """Check the work."""
        raise ToolFailed(ErrorType.INTERNAL_ERROR, f"level {level} is not reached")

    verify = {"tool": "check", "arguments": {"level": 9}}
    steps = [ask(verify=verify, max_verify_retries=1), says("done"), says("done again"), says("ok")]
    [failed] = (await parent(steps, tools=[add, write, look, check]).run("go")).results
    assert failed.error_type is ErrorType.VALIDATION_FAILED
    assert "did not pass its check after 2 attempts: level 9 is not reached" in (
        failed.error_message or ""
    )


async def test_a_check_that_may_not_be_made_is_an_error_and_no_yes() -> None:
    @tool(side_effect="execute", risk="high")
    def run_command(command: str) -> str:
        """Run a command."""
        RAN.append(command)
        return "fine"

    [failed] = (
        await parent(
            [ask(verify="make test"), says("done"), says("ok")],
            tools=[add, write, look, run_command],
        ).run("go")
    ).results
    assert failed.error_type is ErrorType.PERMISSION_DENIED and RAN == []
    assert "could not be checked" in (failed.error_message or "")


@pytest.mark.parametrize(
    ("output", "passes"),
    [
        ("all good", True),
        ("[exit status 1]", False),
        ("boom\n[exit status 0]\n[exit status 2]", False),
        ("[ended by SIGKILL]", False),
        ({"exit_code": 3}, False),
        ({"exit_code": 0, "success": True}, True),
        ({"passed": False}, False),
        (None, True),
    ],
)
async def test_what_a_check_says_is_read_carefully(output: Any, passes: bool) -> None:
    @tool(side_effect="execute", risk="safe")
    def run_command(command: str) -> Any:
        """Run a command."""
        return output

    steps = [ask(verify="make test", max_verify_retries=0), says("done"), says("ok")]
    [result] = (await parent(steps, tools=[add, write, look, run_command]).run("go")).results
    assert result.success is passes


@pytest.mark.parametrize("loading", [Loading.INTERNAL, Loading.DEFERRED])
@pytest.mark.parametrize("named", ["text", "mapping"])
async def test_a_check_that_a_call_names_is_a_tool_that_the_model_may_call(
    loading: Loading, named: str
) -> None:
    @tool(side_effect="none")
    def inner() -> str:
        """Say what only other tools may hear."""
        RAN.append("inner")
        return "kept inside"

    tools = [add, write, look, replace(inner, loading=loading)]
    check: Any = "inner" if named == "text" else {"tool": "inner"}
    steps = [ask(verify=check, max_verify_retries=0), says("done"), says("ok")]
    options: dict[str, Any] = {"tool_search": True} if loading is Loading.DEFERRED else {}
    run = await parent(steps, tools=tools, **options).run("go")
    assert [one.error_type for one in run.results] == [ErrorType.VALIDATION_FAILED]
    assert RAN == [] and "kept inside" not in str(run.results)


async def test_a_hook_can_say_that_the_work_did_not_pass() -> None:
    @tool(side_effect="none")
    def check() -> bool:
        """Check the work."""
        return True

    no = hook("delegation.post_verify", name="strict")(lambda v: block("not like this"))
    steps = [ask(verify="check", max_verify_retries=0), says("done"), says("ok")]
    [failed] = (await parent(steps, tools=[add, write, look, check], hooks=[no]).run("go")).results
    assert "not like this" in (failed.error_message or "")


# ---- other interfaces


async def test_a_person_and_a_python_tool_delegate_through_the_same_call() -> None:
    @tool(side_effect="none")
    async def second_opinion(question: str, context: Context) -> str:
        """Ask somebody else."""
        return (await ask_agent(context, question, "reader"))["answer"]

    ours = parent(
        [
            says("from the reader"),
            calls(("second_opinion", {"question": "sure?"})),
            says("yes"),
            says("ok"),
        ],
        tools=[add, write, look, second_opinion],
    )
    session = ours.session()
    by_hand = await session.delegate("look at it", "reader")
    assert by_hand.data["answer"] == "from the reader"
    assert (await session.run("go")).results[0].data == "yes"
    direct = [e.call.tool for e in events(ours, session.id) if isinstance(e, DirectCall)]
    assert direct == ["delegate", "delegate"]
    denied = parent([], deny=["Agent(reader)"]).session()
    assert (await denied.delegate("look", "reader")).error_type is ErrorType.PERMISSION_DENIED
    await denied.close()
    await session.close()


async def test_where_there_are_no_agents_a_tool_is_told_so() -> None:
    @tool(side_effect="none")
    async def second_opinion(context: Context) -> str:
        """Ask somebody else."""
        return (await ask_agent(context, "sure?", "reader"))["answer"]

    plain = Agent(
        Scripted([calls(("second_opinion", {})), says("ok")]),
        [second_opinion],
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    [failed] = (await plain.run("go")).results
    assert failed.error_type is ErrorType.PERMISSION_DENIED
    assert "this session has no agents" in (failed.error_message or "")


async def test_a_session_can_be_given_one_more_agent() -> None:
    @tool(side_effect="none")
    def hire(context: Context) -> str:
        """Get somebody."""
        context.resource(Delegation).add(SubAgent("newcomer", "N.", tools=["add"]))
        return "hired"

    ours = parent(
        [calls(("hire", {})), ask("newcomer"), says("here"), says("ok")],
        tools=[add, write, look, hire],
    )
    assert (await ours.run("go")).results[1].data["answer"] == "here"


async def test_who_watches_a_session_sees_what_its_agents_use() -> None:
    ours = parent([ask(), calls(("add", {"a": 1, "b": 1})), says("two"), says("ok")])
    shown = [item async for item in ours.stream("go")]
    assert "adder: add" in [getattr(item, "text", "") for item in shown]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "two words"}, "is named"),
        ({"description": " "}, "has no description"),
        ({"mode": "yolo"}, "no mode `yolo`"),
        ({"tools": "add"}, "a list of names"),
    ],
)
def test_an_agent_that_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SubAgent(**{"name": "a", "description": "A.", **given})


def test_two_agents_with_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two agents are named `adder`"):
        parent([], [ADDER, SubAgent("adder", "Again.")])


async def test_a_person_is_asked_one_question_at_a_time_whoever_has_it() -> None:
    from ferrule.permissions.approvals import ApprovalAnswer

    asked: list[asyncio.Event] = []
    open_questions: list[int] = []

    class Slow:
        async def ask(self, request: Any) -> ApprovalAnswer:
            open_questions.append(1)
            assert len(open_questions) == 1
            for _ in range(10):
                await asyncio.sleep(0)
            open_questions.pop()
            asked.append(asyncio.Event())
            return ApprovalAnswer("once", by="ann")

    look_at = calls(("look", {"path": "a"}))
    both = calls(*[("delegate", {"task": f"t{n}", "agent": "reader"}) for n in range(2)])
    steps = Turns(
        {"go": [both, says("ok")], "t0": [look_at, says("x")], "t1": [look_at, says("y")]}
    )
    ours = parent([], ask=["Read(a)"], approver=Slow())
    ours.change_model(steps.model_client())
    await ours.run("go")
    assert (len(asked), RAN) == (2, ["a", "a"])


async def test_an_answer_that_no_hook_changes_reaches_an_agents_history_byte_for_byte() -> None:
    raw = '{"content": [{"type": "thinking", "signature": "x"}]}'
    seen: list[Any] = []
    watch = hook("completion.post", "completion.pre", name="watch")(seen.append)

    class Signed(Scripted):
        def open(self, *given: Any) -> Any:
            exchange = super().open(*given)
            inner = exchange.ask

            async def signed(*asked: Any, **more: Any) -> ModelAnswered:
                return replace(await inner(*asked, **more), raw=raw)

            exchange.ask = signed  # type: ignore[method-assign]
            return exchange

    ours = parent([], hooks=[watch])
    ours.change_model(Signed([ask(), calls(("add", {"a": 1, "b": 1})), says("two"), says("ok")]))
    await ours.run("go")
    answers = [event for event in children(ours)[0] if isinstance(event, ModelAnswered)]
    # The first is named anew by the machine, because its call has no id of its own; so it is no
    # longer the provider's.
    assert [event.raw for event in answers] == [None, raw]
    assert {one.agent_type for one in seen} == {"", "adder"}


async def test_an_agent_made_for_one_task_has_the_tools_that_were_named_in_either_spelling() -> (
    None
):
    spaced = replace(add, namespace="sums")
    step = calls(("delegate", {"task": "t", "tools": ["sums__add", "look"]}))
    ours = parent([step, says("x"), says("ok")], tools=[spaced, write, look])
    result = await ours.run("go")
    assert result.results[0].data["agent"] == "unnamed"
    assert [spec.name for spec in ours.model_client.opened[1].tools] == ["look", "sums::add"]  # type: ignore[attr-defined]


async def test_being_refused_for_want_of_room_is_no_failure_of_the_agent() -> None:
    gate = Gate("a")
    many = calls(*[("delegate", {"task": str(n), "agent": "reader"}) for n in range(4)])
    ours = parent(
        [many, gate, ask("reader"), says("b"), says("ok")],
        delegation=DelegationLimits(max_concurrent=1),
    )
    running = asyncio.create_task(ours.run("go"))
    await asyncio.wait_for(gate.begun.wait(), 10)
    gate.go.set()
    assert [one.success for one in (await running).results] == [True, False, False, False, True]


async def test_every_attempt_at_work_that_is_checked_counts() -> None:
    verdicts = [False, True]

    @tool(side_effect="none")
    def check() -> bool:
        """Check the work."""
        return verdicts.pop(0)

    steps = [
        ask(verify="check"),
        says("done", usage=cost(3)),
        says("fixed", usage=cost(4)),
        says("ok"),
    ]
    result = await parent(steps, tools=[add, write, look, check]).run("go")
    assert (result.results[0].data["tokens"], result.usage.input) == (7, 7)


async def test_what_an_agent_left_open_is_closed_before_its_answer_is_read() -> None:
    said: list[str] = []

    @tool(side_effect="none")
    def opens(context: Context) -> str:
        """Open something."""

        async def close() -> None:
            said.append("closed")

        context.on_close(close)
        return "opened"

    def then(history: Any) -> Any:
        said.append("read")
        return says("ok")

    opener = SubAgent("opener", "Opens.", tools=["opens"])
    steps = [ask("opener"), calls(("opens", {})), says("x"), then]
    ours = parent(steps, [opener], tools=[opens])
    session = ours.session()
    result = await session.run("go")
    assert said == ["closed", "read"]
    # Its lease was given back: another process may go on with its session.
    child = result.results[0].data["session"]
    again = ours.resume(child)
    assert await again.resume() is None
    await again.close()
    await session.close()
