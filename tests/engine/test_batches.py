"""Batches: some runs at a time, within a budget, resumed where they were."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule import (
    Agent,
    BatchProgress,
    Budget,
    ConfigError,
    PricePerMillion,
    ProviderError,
    Scripted,
    Storage,
    run_batch,
)
from ferrule.core.events import Usage
from ferrule.core.messages import Message, UserMessage
from ferrule.models.scripted import Step
from ferrule.storage import paths
from ferrule.testing import says


class Unused(Scripted):
    """A script that need not be used up."""

    async def close(self) -> None:
        """Close it."""


class Echo:
    """A model that answers each message with itself; those in `broken` fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.at_once = self.most_at_once = 0

    async def answer(self, history: Sequence[Message]) -> Step:
        message = history[0]
        assert isinstance(message, UserMessage)
        self.asked.append(message.text)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(0.005)
        self.at_once -= 1
        if message.text in self.broken:
            raise ProviderError("no", code="http_400", retryable=False)
        return says(message.text.upper(), usage=Usage(10, 5))

    def agent(self, journal: Path | str = ":memory:", model: str = "scripted:test") -> Any:
        script = Unused([self.answer] * 200, model=model)
        return Agent(script, storage=Storage(journal=journal))


INPUTS = {f"k{n}": f"text {n}" for n in range(20)}


async def test_all_inputs_are_worked_some_at_a_time_and_reported() -> None:
    echo = Echo()
    seen: list[BatchProgress[str]] = []
    report = await run_batch(echo.agent(), INPUTS, name="b", concurrency=4, on_progress=seen.append)
    assert report.outputs() == {key: text.upper() for key, text in INPUTS.items()}
    assert (report.count("done"), report.usage) == (20, Usage(200, 100))
    assert 1 < echo.most_at_once <= 4
    assert [one.ended for one in seen] == list(range(1, 21)) and seen[-1].total == 20
    assert report.text.startswith("20 done, 0 failed, 0 skipped")


async def test_a_batch_that_was_stopped_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    echo = Echo()
    stop = asyncio.Event()
    agent = echo.agent(tmp_path / "j.db")

    def on_progress(progress: BatchProgress[str]) -> None:
        if progress.ended == 7:
            stop.set()

    work = asyncio.create_task(
        run_batch(agent, INPUTS, name="b", concurrency=3, on_progress=on_progress)
    )
    await stop.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await agent.close()
    done = len(echo.asked)
    assert done < 20
    agent = echo.agent(tmp_path / "j.db")
    report = await run_batch(agent, INPUTS, name="b", concurrency=3)
    assert report.count("done") == 20
    # Those that were stopped in the middle are asked again, and no others.
    assert 20 <= len(echo.asked) <= 20 + 3
    await agent.close()


async def test_one_that_fails_costs_itself_and_is_tried_again_later() -> None:
    echo = Echo()
    echo.broken = {"b"}
    agent = echo.agent()
    report = await run_batch(agent, ["a", "b", "c"], name="x")
    assert [item.status for item in report.items] == ["done", "failed", "done"]
    assert "1: http_400: no" in report.text
    echo.broken.clear()
    again = await run_batch(agent, ["a", "b", "c"], name="x")
    assert again.outputs() == {"0": "A", "1": "B", "2": "C"}
    assert sorted(echo.asked) == ["a", "b", "b", "c"]


async def test_a_budget_of_tokens_holds_over_processes(tmp_path: Path) -> None:
    echo = Echo()
    for _ in range(3):
        agent = echo.agent(tmp_path / "j.db")
        budget = Budget(tokens=60)
        report = await run_batch(agent, INPUTS, name="b", concurrency=1, budget=budget)
        assert (report.count("done"), report.count("skipped")) == (4, 16)
        await agent.close()
    assert len(echo.asked) == 4


async def test_a_budget_of_dollars_needs_a_price_and_counts_it() -> None:
    echo = Echo()
    with pytest.raises(ConfigError, match="price of `odd:model` is not known"):
        await run_batch(echo.agent(model="odd:model"), ["a"], name="b", budget=Budget(dollars=1))
    prices = paths.config() / "prices.yaml"
    prices.parent.mkdir(parents=True, exist_ok=True)
    prices.write_text("odd:model: {input: 100000, output: 200000}\n")
    agent = echo.agent(model="odd:model")
    report = await run_batch(agent, INPUTS, name="b", concurrency=1, budget=Budget(dollars=5.0))
    # Two dollars each: ten tokens at 0.1 and five at 0.2.
    assert (report.count("done"), report.dollars) == (3, pytest.approx(6.0))


async def test_a_program_can_say_what_its_model_costs() -> None:
    price = PricePerMillion(input=100_000, output=200_000, cached=0)
    assert float(price(Usage(10, 5, cached=4))) == pytest.approx(1.6)
    agent = Echo().agent(model="odd:model")
    report = await run_batch(agent, ["a"], name="b", budget=Budget(dollars=9, price=price))
    assert report.dollars == pytest.approx(2.0) and "2.0000 dollars" in report.text
    with pytest.raises(ConfigError, match="input"):
        PricePerMillion(input=-1, output=0)


async def test_wrong_options_are_named() -> None:
    agent = Echo().agent()
    with pytest.raises(ConfigError, match="no name"):
        await run_batch(agent, ["a"], name="")
    with pytest.raises(ConfigError, match="concurrency"):
        await run_batch(agent, ["a"], name="b", concurrency=0)
    with pytest.raises(ConfigError, match="one text"):
        await run_batch(agent, "a text", name="b")
    with pytest.raises(ConfigError, match="above 0"):
        Budget(tokens=0)
    assert (await run_batch(agent, [], name="b")).items == ()
