"""Delegation, whatever is given: an agent never has more than whoever delegated to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, Limits, Risk, Scripted, SideEffect, Storage, Tool, tool
from ferrule.core.events import RunStarted, SessionOpened
from ferrule.engine.delegation.inherited_parts import tighten
from ferrule.engine.delegation.session_tree import Budget
from ferrule.engine.delegation.sub_agent import DelegationLimits, SubAgent
from ferrule.models.scripted import calls, says
from ferrule.permissions.approvals import DenyingApprover
from ferrule.permissions.rule_evaluation import MODES, PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import RecordingApprover

NAMES = ("add", "read_a", "read_b", "write_a", "delegate")
PATTERNS = (*NAMES, "*", "read_*", "*_a", "nothing", "task_*")


@tool(side_effect="none")
def add(a: int) -> int:
    """Add."""
    return a


TOOLS = [replace(add, name=name) for name in NAMES if name != "delegate"]
patterns = st.none() | st.lists(st.sampled_from(PATTERNS), max_size=3)
limits = st.builds(
    Limits,
    max_turns=st.integers(1, 30),
    max_calls_per_turn=st.integers(1, 30),
    max_output_bytes=st.integers(256, 65_536),
    max_seconds=st.none() | st.integers(30, 90),
    max_tokens=st.none() | st.integers(1, 500),
)


@settings(max_examples=60, deadline=None)
@given(
    patterns,
    st.lists(st.sampled_from(PATTERNS), max_size=2),
    patterns,
    limits,
    limits,
    st.integers(1, 3),
)
async def test_no_agent_has_a_tool_or_a_limit_beyond_its_sessions(
    tools: Any, denied: list[str], asked: Any, own: Limits, above: Limits, depth: int
) -> None:
    agent = SubAgent("a", "A.", tools=tools, denied=denied, limits=own)
    request: dict[str, Any] = {"task": "t", "agent": "a"}
    if asked is not None:
        request["tools"] = asked
    steps = [calls(("delegate", request)), says("x"), says("y")]
    ours = Agent(
        Scripted(steps),
        TOOLS,
        storage=Storage(journal=SqliteJournal(":memory:")),
        plugins=[Parts(agents=[agent], delegation=DelegationLimits(max_depth=depth))],
        limits=above,
    )
    result = await ours.session().run("go") if above.turns > 1 else None
    if result is None or not result.results[0].success:
        return
    journal = [record.event for record in ours.journal.records(result.results[0].data["session"])]
    opened, started = journal[:2]
    assert isinstance(opened, SessionOpened) and isinstance(started, RunStarted)
    assert set(opened.tools) <= {one.full_name for one in ours.catalog}
    assert not set(opened.tools) & set(denied)
    assert "delegate" not in opened.tools or ("delegate" in (tools or ()) and depth > 1)
    given = started.limits
    assert given.turns <= own.turns
    assert given.max_calls_per_turn <= min(own.max_calls_per_turn, above.max_calls_per_turn)
    assert given.max_output_bytes <= min(own.max_output_bytes, above.max_output_bytes)
    for name in ("max_seconds", "max_tokens"):
        wanted = [
            value for value in (getattr(own, name), getattr(above, name)) if value is not None
        ]
        found = getattr(given, name)
        assert (found is None) == (not wanted)
        assert found is None or found <= min(wanted)


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 100), st.integers(0, 3)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=20),
)
def test_whatever_is_spent_below_is_spent_above(
    tree: list[tuple[int | None, int]], spent: list[tuple[int, int]]
) -> None:
    budgets: list[Budget] = []
    above: list[list[int]] = []
    for index, (most, parent) in enumerate(tree):
        up = min(parent, index - 1) if index else None
        budgets.append(Budget(most, None if up is None else budgets[up]))
        above.append([index, *(above[up] if up is not None else [])])
    total = [0] * len(tree)
    for where, tokens in spent:
        where %= len(tree)
        before = [budget.compute_remaining() for budget in budgets]
        budgets[where].spend(tokens)
        for index in above[where]:
            total[index] += tokens
        for old, budget in zip(before, budgets, strict=True):
            now = budget.compute_remaining()
            assert (old is None) == (now is None)
            assert old is None or now is None or now <= old
    for index, budget in enumerate(budgets):
        bounds = [most - total[up] for up in above[index] if (most := tree[up][0]) is not None]
        assert budget.compute_remaining() == (min(bounds) if bounds else None)


RULES = ("write", "look", "Edit(a/**)", "Read(a/**)", "Edit", "Agent(x)")


def kind(effect: SideEffect, risk: Risk) -> Tool:
    return replace(add, side_effect=effect, risk=risk)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(MODES),
    st.sampled_from(("", *MODES)),
    st.sampled_from(list(SideEffect)),
    st.sampled_from(list(Risk)),
    st.lists(st.sampled_from(("add", "*")), max_size=1),
    st.lists(st.sampled_from(("add", "*")), max_size=1),
)
def test_no_mode_of_an_agent_allows_what_its_sessions_mode_does_not(
    mode: Any, own: str, effect: SideEffect, risk: Risk, allowed: list[str], asked: list[str]
) -> None:
    """Orders the three answers: a no, a person's yes, a yes. Where nobody can be asked, a question
    is a no.
    """
    gate = PermissionGate(RuleSet.parse(allow=allowed, ask=asked), mode=mode, root=Path("/w"))
    person = RecordingApprover()
    tighter, approver = tighten(gate, person, own)

    def worth(verdict: str, can_ask: bool) -> int:
        return {"deny": 0, "ask": 1 if can_ask else 0, "allow": 2}[verdict]

    of_tool = kind(effect, risk)
    mine = worth(
        tighter.decide(of_tool, {"a": 1}).verdict, not isinstance(approver, DenyingApprover)
    )
    theirs = worth(gate.decide(of_tool, {"a": 1}).verdict, True)
    assert mine <= theirs
    if own == "plan" and effect not in (SideEffect.NONE, SideEffect.READ):
        assert mine == 0
