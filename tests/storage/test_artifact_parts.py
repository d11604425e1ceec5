"""Parts of artifacts: lines, the end, matching lines, places in JSON, rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.storage.artifacts.readers import (
    UnreadableArtifact,
    read_csv_rows,
    read_json_pointer,
    read_last_lines,
    read_lines,
    search_lines,
    split_lines,
)

MAX_JSON_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024


def most(count: int) -> Callable[[Any], bool]:
    """Room for so many."""
    left = iter(range(count))
    return lambda item: next(left, None) is not None


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


texts = st.lists(st.text(st.sampled_from('ab\u00e9\u20ac,"1'), max_size=8), max_size=12)


@given(texts, st.integers(1, 14), st.integers(1, 14), st.integers(1, 9))
def test_lines_are_the_same_however_the_bytes_arrive(
    found: list[str], first: int, count: int, size: int
) -> None:
    data = "\n".join(found).encode()
    expected = data.decode().split("\n")
    if expected[-1] == "":
        expected.pop()
    read = read_lines(cut(data, size), first, most(count))
    assert [text for _, text in read.found] == expected[first - 1 : first - 1 + count]
    assert [number for number, _ in read.found] == list(range(first, first + len(read.found)))
    assert read.next == (first + count if len(expected) >= first + count else 0)


def test_a_line_that_never_ends_is_cut_and_its_memory_is_bounded() -> None:
    def endless() -> Iterable[bytes]:
        yield b"short\n"
        for _ in range(64):
            yield b"x" * 100_000
        yield b"\nlast"

    found = list(split_lines(endless()))
    assert [(len(line), dropped) for line, dropped in found] == [
        (5, 0),
        (MAX_LINE_BYTES, 6_400_000 - MAX_LINE_BYTES),
        (4, 0),
    ]
    assert "5351424 more bytes in this line" in read_lines(endless(), 2, most(1)).found[0][1]


def test_the_end_is_read_from_the_end() -> None:
    assert read_last_lines(b"one\ntwo\nthree\n", True, 2) == (["two", "three"], False)
    assert read_last_lines(b"wo\nthree", False, 2) == (["wo", "three"], True)
    assert read_last_lines(b"wo\nthree", False, 1) == (["three"], False)


@given(texts, st.integers(1, 9))
def test_matching_lines_are_those_that_python_finds(found: list[str], size: int) -> None:
    data = "\n".join(found).encode()
    read = search_lines(cut(data, size), "a.?b", 1, most(100))
    assert read.found == [
        (n, text) for n, text in enumerate(found, 1) if any(p in text for p in _ab(text))
    ]


def _ab(text: str) -> list[str]:
    near = [text[at : at + width] for at in range(len(text)) for width in (2, 3)]
    return [part for part in near if part[0] == "a" and part[-1] == "b" and len(part) > 1]


def test_a_pattern_that_would_hang_elsewhere_is_matched_in_linear_time() -> None:
    read = search_lines([b"a" * 50_000 + b"!\n"], r"(a+)+$", 1, most(10))
    assert read.found == [] and not read.out_of_time


def test_a_search_that_takes_too_long_says_where_it_stopped_and_goes_on_from_there() -> None:
    data = b"".join(b"line %d\n" % n for n in range(1, 3001))
    moments = iter([0.0, 1.0, 99.0])
    read = search_lines([data], "line", 1, most(5000), seconds=10, now=lambda: next(moments))
    assert (read.out_of_time, read.next, len(read.found)) == (True, 513, 512)
    rest = search_lines([data], "line", read.next, most(5000))
    assert [number for number, _ in rest.found] == list(range(513, 3001))


def test_a_match_is_looked_for_in_the_beginning_of_a_line() -> None:
    lines = b"".join(b"x" * before + b"!\n" for before in (65_534, 65_535, 65_536, 70_000))
    assert [number for number, _ in search_lines([lines], "!", 1, most(9)).found] == [1, 2]


def test_a_pattern_that_is_too_long_is_refused() -> None:
    with pytest.raises(UnreadableArtifact, match="2001 characters, the limit is 2000"):
        search_lines([b"x\n"], "a" * 2001, 1, most(1))


def test_a_broken_pattern_is_said() -> None:
    with pytest.raises(UnreadableArtifact, match="not a regular expression"):
        search_lines([b"x\n"], "(", 1, most(1))


DOCUMENT = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "m~n": 8,
    "01": "leading",
    "deep": {"er": [{"x": None}]},
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/m~0n", 8),
        ("/01", "leading"),
        ("/deep/er/0/x", None),
    ],
)
def test_a_pointer_leads_where_rfc_6901_says(pointer: str, value: object) -> None:
    data = json.dumps(DOCUMENT).encode()
    assert read_json_pointer(cut(data, 7), len(data), pointer) == value


@pytest.mark.parametrize(
    ("pointer", "said"),
    [
        ("foo", "begins with `/`"),
        ("/fo", "there is no `fo` at the top; there are: `foo`"),
        ("/foo/2", "at /foo is a list of 2"),
        ("/foo/01", "at /foo is a list of 2"),
        ("/foo/-1", "a list of 2"),
        ("/foo/\u0661", "a list of 2"),
        ("/foo/" + "9" * 5000, "a list of 2"),
        ("/a~1b/c", "nothing below it"),
    ],
)
def test_a_pointer_that_leads_nowhere_says_what_is_there(pointer: str, said: str) -> None:
    data = json.dumps(DOCUMENT).encode()
    with pytest.raises(UnreadableArtifact, match=said):
        read_json_pointer([data], len(data), pointer)


def test_json_that_is_none_too_deep_or_too_large_is_said_before_memory_is_spent() -> None:
    with pytest.raises(UnreadableArtifact, match="not JSON"):
        read_json_pointer([b"{"], 1, "")
    with pytest.raises(UnreadableArtifact, match="not JSON"):
        read_json_pointer([b"[" * 200_000], 200_000, "")

    def never() -> Iterable[bytes]:
        raise AssertionError("read")
        yield b""

    with pytest.raises(UnreadableArtifact, match="use lines or grep"):
        read_json_pointer(never(), MAX_JSON_BYTES + 1, "")


tables = st.lists(
    st.lists(st.text(st.sampled_from('ab,"\n \u00e9'), max_size=5), min_size=2, max_size=2),
    max_size=8,
)


@given(tables, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_rows_are_those_that_were_written(
    table: list[list[str]], first: int, count: int, size: int
) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["name", "n"], *table])
    read = read_csv_rows(cut(out.getvalue().encode(), size), first, most(count))
    assert read.columns == ["name", "n"]
    assert read.rows == table[first - 1 : first - 1 + count]
    assert read.next == (first + count if len(table) >= first + count else 0)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_header_s(delimiter: str) -> None:
    data = delimiter.join(["\ufeffa", "b"]) + "\n" + delimiter.join(["1", "2"]) + "\n"
    read = read_csv_rows([data.encode()], 1, most(9))
    assert (read.columns, read.rows) == (["a", "b"], [["1", "2"]])


def test_rows_that_take_too_long_say_where_to_go_on_or_that_there_is_no_way() -> None:
    data = b"n\n" + b"".join(b"%d\n" % n for n in range(1, 2001))
    read = read_csv_rows([data], 1, most(5000), seconds=1, now=iter([0.0, 0.5, 9.0]).__next__)
    assert (read.out_of_time, read.next, read.rows[-1]) == (True, 1024, ["1023"])
    with pytest.raises(UnreadableArtifact, match="row 1500 is too far in"):
        read_csv_rows([data], 1500, most(1), seconds=1, now=iter([0.0, 9.0]).__next__)


def test_a_table_without_rows_or_with_one_that_never_ends_is_said() -> None:
    assert read_csv_rows([], 1, most(1)).columns == []
    with pytest.raises(UnreadableArtifact, match="row 1 is longer"):
        read_csv_rows([b"a,b\n", b"x" * (MAX_LINE_BYTES + 5), b"\n"], 1, most(1))
    with pytest.raises(UnreadableArtifact, match="cannot be read as CSV"):
        read_csv_rows([b"a,b\n", b"x" * 200_000, b"\n"], 1, most(1))
