"""Line edits to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.toolkits.files import lines

LINE = st.text(
    st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), min_size=1, max_size=8
)
LINES = st.lists(LINE, min_size=1, max_size=6)
END = st.sampled_from(["\n", "\r\n"])


def joined(rows: list[str], end: str, closed: bool) -> str:
    return end.join(rows) + (end if closed and rows else "")


@pytest.mark.proves("edits.byte-exact")
@pytest.mark.parametrize(
    ("text", "first", "last", "new", "result"),
    [
        ("a\nb\nc\n", 2, 3, "x\ny", "a\nx\ny\n"),
        ("a\nb\nc\n", 2, 3, "x\ny\n", "a\nx\ny\n"),
        ("a\nb\nc", 2, 3, "x\ny\n", "a\nx\ny"),
        ("a\nb\nc", 2, 2, "x", "a\nx\nc"),
        ("a\r\nb\r\nc\r\n", 2, 2, "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\r\nb\r\nc", 3, 3, "x\n", "a\r\nb\r\nx"),
        ("a\nb\nc\n", 2, 2, "", "a\nc\n"),
        ("a\nb\nc\n", 3, 3, "", "a\nb\n"),
        ("a\nb\nc", 3, 3, "", "a\nb"),
        ("a\nb\n", 1, 2, "", ""),
        ("a\nb\nc\n", 2, 2, "\n", "a\n\nc\n"),
        ("a\nb\nc\n", 2, 2, "x\n\n", "a\nx\n\nc\n"),
        ("a\nb\nc\n", 4, 3, "d", "a\nb\nc\nd\n"),
        ("a\nb\nc", 4, 3, "d", "a\nb\nc\nd"),
        ("a\nb\nc", 4, 3, "d\n", "a\nb\nc\nd"),
        ("a\nb\n", 1, 0, "x", "x\na\nb\n"),
        ("", 1, 0, "x", "x"),
        ("", 1, 0, "x\n", "x\n"),
        ("a\x0cb\u2028c\nd\n", 2, 2, "x", "a\x0cb\u2028c\nx\n"),
    ],
)
def test_lines_are_replaced_to_the_byte(
    text: str, first: int, last: int, new: str, result: str
) -> None:
    assert lines.replace_lines(text, first, last, new) == result


@pytest.mark.proves("edits.byte-exact")
@given(LINES, END, st.booleans(), LINES, st.booleans(), st.data())
def test_replacing_changes_those_lines_and_nothing_else(
    old: list[str], end: str, closed: bool, new: list[str], new_closed: bool, data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, len(old)))
    last = data.draw(st.integers(first - 1, len(old)))
    text = joined(old, end, closed)
    # A file of one unterminated line does not show which ending it uses.
    end = lines.detect_line_ending(text)
    wanted = joined([*old[: first - 1], *new, *old[last:]], end, closed)
    once = lines.replace_lines(text, first, last, joined(new, "\n", new_closed))
    assert once == wanted


@pytest.mark.proves("edits.idempotent")
@given(LINES, END, st.booleans(), st.lists(LINE, min_size=2, max_size=2), st.booleans())
def test_replacing_two_lines_by_two_lines_twice_equals_once(
    old: list[str], end: str, closed: bool, new: list[str], new_closed: bool
) -> None:
    text, block = joined(["head", "one", "two", *old], end, closed), joined(new, "\n", new_closed)
    once = lines.replace_lines(text, 2, 3, block)
    assert lines.replace_lines(once, 2, 3, block) == once


@given(st.binary(max_size=60))
def test_any_bytes_survive_decoding_splitting_and_encoding(data: bytes) -> None:
    assert lines.encode("".join(lines.split_lines(lines.decode(data)))) == data
