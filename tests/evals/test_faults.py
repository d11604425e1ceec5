"""Models with native tools and poor habits: Ferrule over every kind of fault, and the rules of the
model that commits them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from faults import orders
from faults.habits import AGAIN, KINDS, NAMES, Answer
from faults.play import GIVES_UP, Play
from faults.server import FaultServer, Refused, check, events, prompt, whole

from ferrule import Agent, OpenAIChat, Storage, TextDelta, tool
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.client import ModelClient

ROOT = Path(__file__).parents[2]
ASKED_TWICE = ("order-twice", "order-again")
"""Kinds in which the model asks for a second order. Nothing says that it does not mean it, so it is
placed.
"""
MISTAKES = [name for name, kind in KINDS.items() if not kind.always and name not in AGAIN]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_ends_with_the_order_that_was_meant_whatever_the_model_does_on_its_way(
    kind: str,
) -> None:
    async with FaultServer() as server:
        await finishes(
            OpenAIChat("gpt-4o", base_url=server.url, api_key="none"), server, kind, range(4)
        )


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.streamed])
async def test_it_does_so_behind_the_messages_format_as_well(kind: str) -> None:
    async with FaultServer() as server:
        await finishes(
            Anthropic("claude", base_url=server.url, api_key="none"), server, kind, (1, 3)
        )


async def finishes(
    model_client: ModelClient, server: FaultServer, kind: str, seeds: Iterable[int]
) -> None:
    """Runs of a kind, the odd seeds streamed, each judged by its last words and by what was
    ordered.
    """
    tools = [tool(function, side_effect="none") for function in orders.TOOLS]
    agent = Agent(model_client, tools, tool_calling="native", storage=Storage(journal=":memory:"))
    try:
        for seed in seeds:
            orders.PLACED.clear()
            words = prompt(f"run-{seed}", kind, seed)
            if seed % 2 or KINDS[kind].streamed:
                heard = [item async for item in agent.stream(words)]
                text = "".join(item.text for item in heard if isinstance(item, TextDelta))
            else:
                text = (await agent.run(words)).text
            play = server.plays[f"run-{seed}"]
            assert play.order.confirmation in text, (seed, text, server.refusals)
            assert [play.order.placed] * (1 + (kind in ASKED_TWICE)) == orders.PLACED, seed
            assert play.rounds <= 7 + KINDS[kind].again, seed
    finally:
        await agent.close()


# ---- the rules of the model

FAILED = "Error: that did not work"


def said(role: str, text: str, answer: Answer) -> dict[str, Any]:
    id = answer.calls[0].id if answer.calls else None
    return {"role": role, "content": text, **({"tool_call_id": id} if role == "tool" else {})}


def spoken(answer: Answer) -> dict[str, Any]:
    return whole(answer)["choices"][0]["message"]


def play_reports(kind: str, seed: int, *reports: tuple[str, str]) -> tuple[Play, list[Answer]]:
    """A model that is told the same of every answer, and its answers."""
    play = Play(kind, seed)
    history: list[dict[str, Any]] = [{"role": "user", "content": play.order.request()}]
    answers = [play.reply(history)]
    for role, text in reports:
        history += [spoken(answers[-1]), said(role, text, answers[-1])]
        answers.append(play.reply(history))
    return play, answers


def shape(answer: Answer) -> list[tuple[str, Any]]:
    return [(call.tool, call.arguments) for call in answer.calls]


def first_seed(kind: str) -> int:
    """A seed whose mistake is made at the first step."""
    return next(
        seed
        for seed in range(999)
        if wrong(Play(kind, seed).reply([{"role": "user", "content": ""}]))
    )


def wrong(answer: Answer) -> bool:
    return shape(answer) != [("open_desk", "{}")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_is_the_same_model(kind: str) -> None:
    for seed in range(5):
        assert (
            play_reports(kind, seed, ("tool", "x"))[1] == play_reports(kind, seed, ("tool", "x"))[1]
        )


@pytest.mark.parametrize("role", ["tool", "user"])
def test_a_model_that_is_told_what_is_wrong_makes_the_call_as_it_should_be(role: str) -> None:
    seed = first_seed("invented-name")
    _, answers = play_reports("invented-name", seed, (role, FAILED))
    assert [wrong(answer) for answer in answers] == [True, False]


def test_a_model_that_must_be_told_three_times_is_right_after_the_third() -> None:
    _, answers = play_reports("near-name-3", first_seed("near-name-3"), *[("tool", FAILED)] * 3)
    assert [wrong(answer) for answer in answers] == [True, True, True, False]


def test_a_model_that_is_only_asked_to_go_on_makes_its_mistake_until_it_gives_up() -> None:
    seed = first_seed("invented-name")
    play, answers = play_reports("invented-name", seed, *[("user", "Please continue.")] * 8)
    assert all(wrong(answer) for answer in answers)
    assert (
        play.gave_up
        and answers[-1].text == GIVES_UP
        and 4 <= sum(bool(a.calls) for a in answers) - 1 <= 6
    )


def test_asked_the_same_again_it_says_the_same_but_an_empty_answer_only_once() -> None:
    history = [{"role": "user", "content": ""}]
    play = Play("invented-name", first_seed("invented-name"))
    assert play.reply(history) is play.reply(history)
    play = Play("empty", first_seed("empty"))
    assert [wrong(play.reply(history)), wrong(play.reply(history))] == [True, False]


def test_a_report_that_was_written_into_earlier_words_is_read() -> None:
    play = Play("invented-name", first_seed("invented-name"))
    first = play.reply([{"role": "user", "content": "Order it."}])
    again = play.reply(
        [{"role": "user", "content": [{"type": "text", "text": f"Order it.\n{FAILED}"}]}]
    )
    assert [wrong(first), wrong(again)] == [True, False]


def test_a_stuck_model_goes_on_when_something_else_comes_back() -> None:
    for reports, stuck in ((["sum"] * 2, True), (["sum", "sum, and that again"], False)):
        play = Play(
            "over-again", next(s for s in range(99) if Play("over-again", s).faulty == "add_up")
        )
        play.read = {"open_desk": "", "find_item": "1", "get_price": "5"}
        history: list[dict[str, Any]] = [{"role": "user", "content": ""}]
        answer = play.reply(history)
        for report in reports:
            text = report.replace("sum", "sum: 495 cents")
            history += [spoken(answer), said("tool", text, answer)]
            answer = play.reply(history)
        assert [call.tool for call in answer.calls] == ["add_up" if stuck else "place_order"]


@pytest.mark.parametrize("kind", MISTAKES)
def test_every_mistake_is_one(kind: str) -> None:
    for seed in range(10):
        play, proper = Play(kind, seed), Play("none", seed)
        done = dict.fromkeys(NAMES[: NAMES.index(play.faulty)], "1234")
        play.read, proper.read, proper.order = dict(done), dict(done), play.order
        answer, right = (model.reply([{"role": "user", "content": ""}]) for model in (play, proper))
        assert play.faulty in KINDS[kind].steps and shape(answer) != shape(right)
        if KINDS[kind].pair:
            assert len({call.id for call in answer.calls}) == 1 or {
                call.index for call in answer.calls
            } == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_says_what_a_whole_answer_says(kind: str) -> None:
    answer = Play(kind, 3).reply([{"role": "user", "content": ""}])
    *chunks, done = [event.removeprefix(b"data: ").strip() for event in events(answer, usage=False)]
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    pieces = [
        piece["function"]["arguments"]
        for c in choices
        for piece in c["delta"].get("tool_calls", ())
    ]
    message = spoken(answer)
    sent = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    assert done == b"[DONE]" and text == (message["content"] or "")
    assert (
        pieces == sent
        if any(isinstance(s, dict) for s in sent)
        else "".join(pieces) == "".join(sent)
    )
    assert choices[-1]["finish_reason"] == whole(answer)["choices"][0]["finish_reason"]


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKED = {"role": "user", "content": "x"}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}


def calling(**changes: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{**CALL, **changes}]}


@pytest.mark.parametrize(
    "history",
    [
        [ASKED, calling()],
        [ASKED, calling(), ASKED],
        [ASKED, RESULT],
        [ASKED, calling(), {**RESULT, "tool_call_id": "b"}],
        [ASKED, calling(), RESULT, ASKED, RESULT],
        [ASKED, {"role": "assistant", "content": None}],
        [ASKED, {"role": "assistant", "content": "x", "tool_calls": []}],
        [ASKED, calling(function={"name": "functions.f", "arguments": "{}"}), RESULT],
        [ASKED, calling(function={"name": "f", "arguments": {}}), RESULT],
        [{"role": "narrator", "content": "x"}],
    ],
)
def test_a_history_that_the_provider_would_not_take_is_refused(
    history: list[dict[str, Any]],
) -> None:
    with pytest.raises(Refused):
        check(history)


def test_a_history_that_the_provider_takes_is_taken() -> None:
    check(
        [
            {"role": "system", "content": "s"},
            ASKED,
            calling(),
            RESULT,
            {"role": "assistant", "content": "x"},
        ]
    )
    check([ASKED, calling(id=None), {**RESULT, "tool_call_id": ""}])
    check([ASKED, calling(function={"name": "f", "arguments": {}}), RESULT], objects=True)


# ---- the program


def test_the_program_measures_a_framework_in_a_process_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "faults.json"
    asked = ["--peers", "ferrule", "--only", "none,cut-json", "--seeds", "2", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "evals")}
    ran = subprocess.run(
        [sys.executable, "-m", "faults", *asked],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(out.read_text())["kinds"]
    assert [found[kind]["ferrule"]["once"] for kind in ("none", "cut-json")] == [2, 2]
    assert "| arguments cut off | 100 |" in ran.stdout


def test_the_page_has_the_table_of_all_kinds() -> None:
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    block = page.partition("<!-- faults -->")[2].partition("<!-- /faults -->")[0]
    rows = [line.split("|")[1].strip() for line in block.splitlines() if line.startswith("| ")]
    assert rows[2 : 2 + len(KINDS)] == [kind.words for kind in KINDS.values()]
