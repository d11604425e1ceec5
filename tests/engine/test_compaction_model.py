"""Compaction with a real model on this machine: a conversation longer than its window."""

from __future__ import annotations

import pytest

from ferrule import Agent, ProviderError, Storage
from ferrule.core.events import ContextCompacted
from ferrule.core.messages import UserMessage
from ferrule.engine.replay.replay import replay
from ferrule.models.client import ModelOptions
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule_local.client import Local

WINDOW = 512
PAGE = "The garden has beans, leeks, onions, marrows, sorrel and thyme in row {n}. " * 6


@pytest.mark.model
async def test_a_conversation_longer_than_the_window_of_a_real_model_goes_on() -> None:
    model_client = Local(n_ctx=WINDOW)
    options = ModelOptions(temperature=0.0, max_tokens=8)

    journal = SqliteJournal(":memory:")
    agent = Agent(
        model_client,
        instructions="Be brief.",
        storage=Storage(journal=journal),
        model_options=options,
        context={"keep": 2},
    )
    session = agent.session()
    for n in range(5):
        assert (await session.run(f"Page {n}. {PAGE.format(n=n)} Say a word.")).text
    machine = session.driver.machine
    whole = machine.compaction.full_history(machine.history)
    with pytest.raises(ProviderError) as refused:
        await model_client.open("Be brief.", (), options).ask([*whole, UserMessage("And?")])
    assert refused.value.code == "context_overflow"

    records = list(journal.records(session.id))
    made = [record.event for record in records if isinstance(record.event, ContextCompacted)]
    assert any(event.made == "summary" and event.usage.output for event in made)
    assert {event.window for event in made} == {WINDOW}
    assert replay(records).same
    await session.close()
    await model_client.close()
