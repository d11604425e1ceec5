"""Other rules are read from lines and tried on past calls, within bounds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, Storage, tool
from ferrule.core.errors import ConfigError
from ferrule.engine.replay.what_if_history import (
    ComparisonLimits,
    HistoryComparison,
    compare_history,
    parse_rules,
)
from ferrule.models.scripted import calls, says
from ferrule.storage.audit.past_calls import read_past_calls
from ferrule.storage.journal.sqlite import SqliteJournal


@tool(side_effect="write", risk="low")
def note(text: str) -> str:
    """Write something down."""
    return text


@tool(side_effect="none", risk="safe")
def add(number: int) -> int:
    """Add."""
    return number


def test_rules_are_read_from_lines_and_a_wrong_one_is_named() -> None:
    rules = parse_rules("# mine\n\ndeny Bash(rm:*)\nAsk: note\n allow Read(docs/**)\n")
    assert [(rule.list, rule.text) for rule in rules] == [
        ("deny", "Bash(rm:*)"), ("ask", "note"), ("allow", "Read(docs/**)"),
    ]  # fmt: skip
    for text, said in (
        ("deny x\nnote", "line 2 begins with `note`"),
        ("allow Bash(", "line 1: .*closing"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_rules(text)


async def test_past_calls_are_counted_by_what_other_rules_would_have_said() -> None:
    script = [
        calls(("note", {"text": "a"}), ("add", {"number": 1}), ("note", {"text": "b"})),
        says("ok"),
    ]
    with SqliteJournal(":memory:") as journal:
        agent = Agent(
            Scripted(script),
            [note, add],
            storage=Storage(journal=journal),
            permissions=Permissions(allow=["note"]),
        )
        await agent.run("go")
        past = list(read_past_calls(journal))

        def tried(text: str, *, keep: bool = True, **more: Any) -> HistoryComparison:
            return compare_history(
                past, agent.gate, parse_rules(text), agent.catalog, keep=keep, **more
            )

        compared = tried("deny note")
        assert dict(compared.counts) == {"refused": 2, "same": 1} and not compared.cut
        assert [one.call.tool for one in compared.changed] == ["note", "note"]
        assert dict(tried("", keep=False).counts) == {"asked": 2, "same": 1}
        assert dict(tried("", mode="plan").counts)["refused"] == 2
        few = tried("deny note", limits=ComparisonLimits(calls=1))
        assert (few.looked, few.cut) == (1, True)
        clock = itertools.count()
        bounds = ComparisonLimits(seconds=1, now=lambda: next(clock))
        late = tried("deny note", limits=bounds)
        assert late.cut and late.looked < 3
