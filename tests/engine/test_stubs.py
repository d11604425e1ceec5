"""Previews of kept results: they follow the structure of the whole and fit their bound."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import encode_json
from ferrule.engine.artifacts.stubs import HeadAndTail, build_stub, json_size
from ferrule.storage.artifacts.store import Artifact

MAX_PREVIEW = 16 * 1024
TAIL_SIZE = 4 * 1024


def stub_of(whole: Any, mime: str = "", room: int = MAX_PREVIEW) -> dict[str, Any]:
    """The stub of a text, or of a JSON value."""
    text = whole if isinstance(whole, str) else encode_json(whole)
    data = text.encode("utf-8", "replace")
    mime = mime or ("text/plain" if isinstance(whole, str) else "application/json")
    artifact = Artifact(hashlib.sha256(data).hexdigest(), len(data), mime, data.count(b"\n"))
    value = None if isinstance(whole, str) else whole
    return build_stub(artifact, HeadAndTail(data[:65536], data[-TAIL_SIZE:], value), room)


def preview_of(whole: Any, mime: str = "", room: int = MAX_PREVIEW) -> Any:
    return stub_of(whole, mime, room)["preview"]


@pytest.mark.proves("artifacts.preview")
def test_small_fields_of_an_object_stay_and_large_ones_are_named_with_their_size() -> None:
    whole = {
        "total": 3,
        "note": "short",
        "log": "x" * 5000,
        "rows": [{"id": n} for n in range(900)],
        "blobs": ["y" * 3000, "z" * 3000],
        "meta": {f"key{n}": "v" * 100 for n in range(20)},
    }
    assert preview_of(whole) == {
        "total": 3,
        "note": "short",
        "log": "[omitted: text of 5000 characters]",
        "rows": [{"id": 0}, f"[899 more items, {json_size(whole['rows'])} bytes]"],
        "blobs": "[omitted: list of 2 items, 6007 bytes]",
        "meta": f"[omitted: object of 20 keys, {json_size(whole['meta'])} bytes: "
        + ", ".join(f"key{n}" for n in range(12))
        + ", …]",
    }


@pytest.mark.proves("artifacts.preview")
def test_wrappers_of_one_key_are_taken_off() -> None:
    assert preview_of({"result": {"data": {"total": 1, "log": "x" * 5000}}}) == {
        "total": 1,
        "log": "[omitted: text of 5000 characters]",
    }


@pytest.mark.proves("artifacts.preview")
def test_of_a_list_the_first_items_are_shown_and_how_many_are_left() -> None:
    shown = preview_of([{"id": n, "text": "x" * 90} for n in range(1000)])
    assert shown[0] == {"id": 0, "text": "x" * 90}
    assert shown[-1] == f"[{1000 - len(shown) + 1} more items]"


@pytest.mark.proves("artifacts.preview")
def test_json_that_came_as_text_is_seen_as_json() -> None:
    assert preview_of(json.dumps({"total": 1, "log": "x" * 5000}))["total"] == 1


@pytest.mark.proves("artifacts.preview")
def test_of_a_diff_its_files_are_shown() -> None:
    one = (
        "diff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n@@ -1,2 +1,3 @@\n "
        "same\n-old\n+new\n+more\n"
    )
    gone = "diff --git a/gone b/gone\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    text = "".join(one.format(f"src/f{n}.py") for n in range(3)) + gone
    assert preview_of(text).splitlines() == [
        "diff of 4 files",
        "src/f0.py  +2 -1",
        "src/f1.py  +2 -1",
        "src/f2.py  +2 -1",
        "gone  +0 -1",
    ]


@pytest.mark.proves("artifacts.preview")
def test_of_a_table_the_header_the_first_rows_and_the_last() -> None:
    text = "id,name\n" + "".join(f"{n},row {n}\n" for n in range(5000))
    shown = preview_of(text, "text/csv").splitlines()
    assert shown[:3] == ["id,name", "0,row 0", "1,row 1"]
    assert shown[-2:] == [f"[{5001 - len(shown) + 1} rows left out]", "4999,row 4999"]


@pytest.mark.proves("artifacts.preview")
def test_of_text_the_first_and_the_last_lines_and_how_many_are_left_out() -> None:
    shown = preview_of("".join(f"line {n}\n" for n in range(9000))).splitlines()
    gap = next(index for index, line in enumerate(shown) if "left out" in line)
    assert (shown[0], shown[-1]) == ("line 0", "line 8999")
    assert shown[gap] == f"[{9000 - len(shown) + 1} lines left out]"
    assert shown[gap + 1] == f"line {9000 - (len(shown) - gap - 1)}"


@pytest.mark.proves("artifacts.preview")
def test_of_one_endless_line_the_beginning_is_shown() -> None:
    assert preview_of("x" * 60_000) == "x" * 400 + "… [60000 characters]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3000),
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=1500), inner, max_size=12)
    ),
    max_leaves=30,
)


@pytest.mark.proves("artifacts.preview")
@given(json_values, st.integers(250, 20_000))
def test_a_stub_of_any_value_fits_its_room(whole: Any, room: int) -> None:
    assert json_size(stub_of(whole, room=room)) <= room


@pytest.mark.proves("artifacts.preview")
@given(
    st.text(st.sampled_from('a,\n"\u20ac\x01'), max_size=200),
    st.integers(1, 200),
    st.sampled_from(["text/plain", "text/csv", "application/json"]),
    st.sampled_from(["", "diff --git a/x b/x\n--- a/x\n+++ b/x\n", "[", "{"]),
    st.integers(250, 20_000),
)
def test_a_stub_of_any_text_fits_its_room(
    piece: str, times: int, mime: str, start: str, room: int
) -> None:
    assert json_size(stub_of(start + piece * times, mime, room)) <= room


@pytest.mark.proves("artifacts.preview")
def test_bytes_that_are_no_text_are_not_shown() -> None:
    shown = stub_of("GIF89a" * 10_000, "image/gif")
    assert shown["preview"] == "[60000 bytes that are not text]" and "lines" not in shown
