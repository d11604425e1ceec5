"""Answers that repeat themselves are ended, and what looks alike is not."""

from __future__ import annotations

import asyncio

import pytest

from ferrule.core.events import ModelAnswered
from ferrule.models.client import Sink
from ferrule_local.repetition import NOTICE, ask_until_loop, find_loop


def test_a_block_said_again_and_again_is_a_loop() -> None:
    text = "Here it is. " + "I am happy. " * 40
    found = find_loop(text)
    assert found is not None
    assert len("I am happy. " * 38) < found[0] <= len(text)
    assert found[1] == len("I am happy. ")


def test_blocks_that_differ_in_their_numbers_are_a_loop() -> None:
    assert find_loop("Animals:\n" + "".join(f"{n}. Fish\n" for n in range(1, 60))) is not None


@pytest.mark.parametrize(
    "text",
    [
        "-" * 200,
        "|---|---|" * 20,
        ", ".join(str(n) for n in range(400)),
        "".join(f"2026-01-{day:02} INFO started\n" for day in range(1, 14)),
        "la la la, " * 20,
        "".join(f"def f{n}():\n    return {'abcdefghijk'[n]}\n\n" for n in range(11)),
    ],
)
def test_rules_tables_numbers_logs_and_refrains_are_no_loop(text: str) -> None:
    assert find_loop(text) is None


async def test_a_looping_answer_is_cancelled_cut_and_said() -> None:
    stopped = asyncio.Event()
    notices: list[tuple[str, str]] = []

    async def ask(sink: Sink) -> ModelAnswered:
        sink.add_text("Well: ")
        try:
            while True:
                sink.add_text("no, yes. ")
                await asyncio.sleep(0)
        finally:
            stopped.set()

    answer = await ask_until_loop(ask, None, notices)
    assert stopped.is_set()
    assert (answer.text, answer.stop, notices) == ("Well: no, yes.", "end", [NOTICE])


async def test_a_person_who_cancels_gets_the_cancellation() -> None:
    begun = asyncio.Event()

    async def ask(sink: Sink) -> ModelAnswered:
        begun.set()
        await asyncio.Event().wait()
        return ModelAnswered()

    asking = asyncio.create_task(ask_until_loop(ask, None, []))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_an_answer_that_ends_is_passed_on_as_it_is() -> None:
    async def ask(sink: Sink) -> ModelAnswered:
        sink.add_text("ok")
        return ModelAnswered("ok", stop="end")

    assert await ask_until_loop(ask, None, []) == ModelAnswered("ok", stop="end")
