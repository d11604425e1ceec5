"""The corpus: what models really write, read whole, letter by letter and cut anywhere."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ferrule.models.dialects import Reading, ReplyReader

FOLDER = Path(__file__).parent / "corpus"
ENTRIES: list[tuple[str, dict[str, Any]]] = [
    (f"{file.stem}: {entry['name']}", entry)
    for file in sorted(FOLDER.glob("*.yaml"))
    for entry in yaml.safe_load(file.read_text(encoding="utf-8"))
]
IDS = [name for name, _ in ENTRIES]
CASES = [entry for _, entry in ENTRIES]


def read(reply: str, cuts: list[int], entry: dict[str, Any]) -> tuple[Reading, str]:
    reader = ReplyReader(tools=entry.get("schemas") or entry.get("tools") or ())
    bounds = [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)]
    shown = "".join(reader.feed(reply[a:b]) for a, b in itertools.pairwise(bounds))
    return reader.finish(), shown


def whole(entry: dict[str, Any]) -> Reading:
    return read(entry["reply"], [], entry)[0]


def test_corpus_is_large_enough_and_names_are_unique() -> None:
    assert len(ENTRIES) >= 150
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_reply_gives_the_expected_text_calls_and_reasoning(entry: dict[str, Any]) -> None:
    reading = whole(entry)
    assert [call.tool for call in reading.calls] == [
        call["tool"] for call in entry.get("calls", [])
    ]
    for call, expected in zip(reading.calls, entry.get("calls", []), strict=True):
        assert call.id == ""
        if "raw" in expected:
            assert call.arguments == expected["raw"]
            with pytest.raises(ValueError):
                json.loads(call.arguments)
        else:
            assert json.loads(call.arguments) == expected["arguments"]
    assert reading.text == entry.get("text", "")
    assert reading.reasoning == entry.get("reasoning", "")


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_repairs_are_reported_and_nothing_else_is_called_one(entry: dict[str, Any]) -> None:
    repaired = any(problem.startswith("repaired:") for problem in whole(entry).problems)
    assert repaired == entry.get("repaired", False)


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_letter_by_letter_reads_the_same(entry: dict[str, Any]) -> None:
    reply = entry["reply"]
    reading, shown = read(reply, list(range(len(reply))), entry)
    assert reading == whole(entry)
    headless = "</think>" in reply and "<think>" not in reply
    assert headless or reading.text.startswith(shown)


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_every_single_cut_reads_the_same(entry: dict[str, Any]) -> None:
    expected = whole(entry)
    for cut in range(1, len(entry["reply"])):
        assert read(entry["reply"], [cut], entry)[0] == expected, cut


@given(st.sampled_from(CASES), st.lists(st.integers(0, 400), max_size=12))
def test_any_cuts_read_the_same(entry: dict[str, Any], cuts: list[int]) -> None:
    assert read(entry["reply"], cuts, entry)[0] == whole(entry)


@given(
    st.lists(st.sampled_from(CASES), min_size=2, max_size=4),
    st.lists(st.integers(0, 1500), max_size=20),
)
def test_replies_put_together_read_the_same_however_cut(
    parts: list[dict[str, Any]], cuts: list[int]
) -> None:
    reply = "\n\n".join(part["reply"] for part in parts)
    assert read(reply, cuts, {})[0] == read(reply, [], {})[0]
    assert read(reply, list(range(len(reply))), {})[0] == read(reply, [], {})[0]


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_a_reply_that_stops_early_never_gains_a_call(entry: dict[str, Any]) -> None:
    """What was cut off may be broken or missing; it is never another whole call than the model
    wrote.
    """
    reply = entry["reply"]
    known = {(c.tool, c.arguments) for c in whole(entry).calls}
    for stop in range(1, len(reply)):
        reader = ReplyReader(tools=entry.get("schemas") or entry.get("tools") or ())
        reader.feed(reply[:stop])
        for call in reader.finish(cut=True).calls:
            if _whole_json(call.arguments):
                assert (call.tool, call.arguments) in known or not known, (stop, call)


def _whole_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
