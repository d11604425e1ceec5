"""Arguments on the bus while a model writes them: read in pieces, and without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import ArgumentsDelta, Identity
from ferrule.core.events import ModelAnswered, ModelFailed
from ferrule.engine.event_bus.argument_redaction import ArgumentsReader
from ferrule.engine.event_bus.bus import Bus
from ferrule.permissions.redaction import Redactor

ADA = Identity("acme", "ada", "s1", "r1")
KEY = "ghp_" + "a1B2" * 9
KNOWN = 'pass "word" \\ with\nall'

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def cut(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(
    st.dictionaries(st.text(max_size=8), values, max_size=5),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.data(),
)
def test_an_object_that_arrives_in_pieces_is_read_as_the_whole_one(
    given_values: dict[str, Any], ascii_only: bool, spaces: int | None, data: st.DataObject
) -> None:
    text = json.dumps(given_values, ensure_ascii=ascii_only, indent=spaces)
    reader = ArgumentsReader()
    found: dict[str, Any] = {}
    for piece in cut(text, data):
        for member in reader.read(piece):
            if member.kind == "value":
                found[member.name] = json.loads(member.text)
            else:
                found[member.name] = found.get(member.name, "") + member.text
    assert found == given_values


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '"a"', "{1:2}", '{"a" 1}', '{"a":1}}', '{"a":1,,', "nonsense", '{"a":tru,"b":1}'],
)
def test_what_is_no_object_is_read_without_an_error(text: str) -> None:
    feed, reader = published([text])
    assert all(e.kind == "piece.arguments" for e in reader), feed


def published(pieces: list[str], redactor: Redactor | None = None) -> tuple[Any, list[Any]]:
    bus = Bus(redactor=redactor or Redactor(values=[KNOWN]))
    feed, reader = bus.feed(ADA), bus.subscribe(ADA)
    for piece in pieces:
        feed.publish(ArgumentsDelta(0, "write_file", piece))
    return feed, reader.take_nowait()


SECRET_ARGUMENTS: list[dict[str, Any]] = [
    {"path": "a.py", "content": f"key = '{KEY}'\nnext"},
    {"user": "ada", "password": 'hunter2 "hunter2" hunter2'},
    {"password": {"deep": ["hunter2"]}, "n": 1},
    {"content": f"it is {KNOWN} and more"},
    {"headers": {"Authorization": f"Bearer {KEY}"}},
    {KEY: "a name"},
    {"content": json.dumps({"password": "hunter2 hunter2"})},
]


@pytest.mark.parametrize("spelled", [False, True])
@pytest.mark.parametrize("arguments", SECRET_ARGUMENTS)
@settings(max_examples=10)
@given(data=st.data())
def test_however_arguments_are_cut_no_secret_shows(
    arguments: dict[str, Any], spelled: bool, data: st.DataObject
) -> None:
    text = json.dumps(arguments)
    if spelled:
        text = text.replace("h", "\\u0068").replace("g", "\\u0067")
    _, events = published(cut(text, data))
    for event in events:
        assert event.kind == "piece.arguments"
    shown = "".join(f"{e.payload['name']}={e.payload['text']}" for e in events)
    for secret in (KEY, KEY[4:20], "hunter2", '"word"', "with\nall"):
        assert secret not in shown


def test_text_is_shown_as_it_arrives_and_other_values_when_they_are_complete() -> None:
    pieces = ['{"path":"notes', '.md", "line": 1', '2, "content":"one\\ntwo th', 'ree\\u00e9 x"}']
    _, events = published(pieces, Redactor())
    assert [(e.payload["name"], e.payload["text"]) for e in events] == [
        ("path", "notes.md"),
        ("line", "12"),
        ("content", "one\ntwo "),
        ("content", "threeé "),
        ("content", "x"),
    ]
    assert {(e.payload["call"], e.payload["tool"]) for e in events} == {(0, "write_file")}


def test_calls_of_one_answer_are_kept_apart_and_a_new_answer_begins_anew() -> None:
    bus = Bus(redactor=Redactor())
    feed, reader = bus.feed(ADA), bus.subscribe(ADA, kinds=["piece.*"])
    feed.publish(ArgumentsDelta(0, "a", '{"x":"one '))
    feed.publish(ArgumentsDelta(1, "b", '{"y":"two '))
    feed.publish(ArgumentsDelta(0, "a", 'more "}'))
    feed.publish(ModelAnswered("done"))
    feed.publish(ArgumentsDelta(0, "a", '{"z":"three '))
    feed.publish(ModelFailed("timeout", "no answer"))
    feed.publish(ArgumentsDelta(0, "a", '{"z":"four "}'))
    shown = [
        (e.payload["call"], e.payload["name"], e.payload["text"]) for e in reader.take_nowait()
    ]
    assert shown == [
        (0, "x", "one "),
        (1, "y", "two "),
        (0, "x", "more "),
        (0, "z", "three "),
        (0, "z", "four "),
    ]


class Broken(Redactor):
    def redact_text(self, text: str) -> str:
        raise ValueError(text)


def test_arguments_that_cannot_be_redacted_are_withheld() -> None:
    _, events = published([f'{{"content":"{KEY} "}}'], Broken())
    assert [e.kind for e in events] == ["audit.redaction_failed"]
    assert events[0].payload["of"] == "piece.arguments"
    assert KEY.encode() not in events[0].data
