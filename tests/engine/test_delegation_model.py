"""Delegation with a real model on this machine: the agent reads a file of a real workspace through
the real gate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, Storage
from ferrule.core.events import CallEvaluated, ModelAnswered, SessionOpened
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.models.client import ModelOptions
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.files import tools


@pytest.mark.model
async def test_a_real_model_does_what_was_delegated_to_it(tmp_path: Path) -> None:
    (tmp_path / "garden").mkdir()
    (tmp_path / "garden" / "plan.txt").write_text("sow the beans in May\n")
    reader = SubAgent(
        "reader",
        "Reads files.",
        "You are a careful assistant.",
        tools=["read_file"],
        model="local:smollm2",
    )
    ask = ("delegate", {"task": "Read the file garden/plan.txt", "agent": "reader"})
    heard: list[Any] = []

    def then(history: Any) -> Any:
        heard.append(history[-1].text)
        return says("in May")

    ours = Agent(
        Scripted([calls(ask), then]),
        tools.TOOLS,
        workspace=tmp_path,
        permissions=Permissions(allow=["Read(**)"]),
        storage=Storage(journal=SqliteJournal(":memory:")),
        plugins=[Parts(agents=[reader])],
        model_options=ModelOptions(),
    )
    result = await ours.run("When are the beans sown?")
    [answer] = result.results
    assert answer.success and "sow the beans in May" in answer.data["answer"]
    assert "sow the beans in May" in heard[0]
    journal = [record.event for record in ours.journal.records(answer.data["session"])]
    opened = journal[0]
    assert isinstance(opened, SessionOpened) and (opened.agent, opened.tools) == (
        "reader",
        ("read_file",),
    )
    assert [event.verdict for event in journal if isinstance(event, CallEvaluated)] == ["allow"]
    assert (
        result.usage.input
        >= sum(e.usage.input for e in journal if isinstance(e, ModelAnswered))
        > 0
    )
    await ours.close()
