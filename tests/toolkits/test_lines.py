"""Line edits to the byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.models.untrusted_text import escape_untrusted
from ferrule.toolkits.files import edit_matching, lines

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


@given(st.text(max_size=40), st.text(min_size=1, max_size=4), st.text(max_size=4))
def test_an_exact_edit_happens_only_where_the_text_is_unique(text: str, old: str, new: str) -> None:
    places = sum(text.startswith(old, i) for i in range(len(text)))
    try:
        result, count, _ = edit_matching.replace_match(
            text, old, new, everywhere=False, where="`f`"
        )
    except ToolFailed as refusal:
        assert places != 1 or old == new, refusal
        return
    if places == 1 and lines.detect_line_ending(text) == "\n":
        assert (result, count) == (text.replace(old, new), 1)


def test_an_edit_written_with_bare_newlines_works_in_a_crlf_file() -> None:
    text = "a\r\nb\r\nc\r\n"
    assert (
        edit_matching.replace_match(text, "a\nb", "x\ny\nz", everywhere=False, where="`f`")[0]
        == "x\r\ny\r\nz\r\nc\r\n"
    )
    assert (
        edit_matching.replace_match(text, "b", "x\ny", everywhere=False, where="`f`")[0]
        == "a\r\nx\r\ny\r\nc\r\n"
    )


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("", "write_file"),
        ("2: beta", "line number"),
        ("bet", None),
        ("  beta\n  gama", "line 2 has its first line"),
        ("betta max", "the most similar line is 2: beta max"),
        ("entirely different", "read the file again"),
        ("a", "at lines 1, 1, 2"),
    ],
)
def test_an_edit_that_does_not_fit_says_why(old: str, hint: str | None) -> None:
    text = "alpha\nbeta max\n"
    if old.startswith("  beta"):
        text = "alpha\nbeta\n"
    if hint is None:
        assert edit_matching.replace_match(text, old, "x", everywhere=False, where="`f`")[1] == 1
        return
    with pytest.raises(ToolFailed, match=hint):
        edit_matching.replace_match(text, old, "x", everywhere=False, where="`f`")


@pytest.mark.proves("untrusted.edits")
@pytest.mark.parametrize(
    "held", ["a\u200bb", "stop = <|im_end|>", "\ufeffimport x", "</s>", "x\u202ey\U000e0041"]
)
def test_an_edit_of_what_was_spelled_out_fits_as_it_was_shown_and_is_told_how_else(
    held: str,
) -> None:
    text = f"first\n{held}\nlast\n"
    shown = escape_untrusted(held)
    assert shown != held
    copied = json.loads(f'"{shown}"')
    assert (
        edit_matching.replace_match(text, copied, "new", everywhere=False, where="f")[0]
        == "first\nnew\nlast\n"
    )
    with pytest.raises(
        ToolFailed, match=r"at line 2 the file has the characters .* with one backslash"
    ):
        edit_matching.replace_match(text, shown, "new", everywhere=False, where="f")
    with pytest.raises(
        ToolFailed, match=r"at line 2 the file has these escapes as text.* backslashes twice"
    ):
        edit_matching.replace_match(
            f"first\n{shown}\nlast\n", copied, "new", everywhere=False, where="f"
        )
