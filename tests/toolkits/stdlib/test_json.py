"""`json::query`: pointers and paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.toolkits.stdlib.json_path import select_nodes
from ferrule.toolkits.stdlib.json_query import query

SHOP = {
    "orders": [
        {"id": 1, "total": 5, "state": "open"},
        {"id": 2, "total": 15, "state": "open"},
        {"id": 3, "total": 25.5, "state": "it's done"},
    ],
    "a b": {"c/d": [1, [2, [3]]], "m~n": None},
    "": 7,
}

RFC = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", RFC), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2),
        ("/e^f", 3), ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8),
    ],
)  # fmt: skip
def test_pointers_are_those_of_rfc_6901(ask: Any, pointer: str, value: Any) -> None:
    found = ask("json::query", document=RFC, path=pointer).data
    assert found == {
        "matches": [{"pointer": pointer, "value": value}],
        "count": 1,
        "partial": False,
    }


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.orders[0].id", [1]),
        ("$.orders[-1].id", [3]),
        ("$.orders[9].id", []),
        ("$.orders[0:2].id", [1, 2]),
        ("$.orders[::-1].id", [3, 2, 1]),
        ("$.orders[::0].id", []),
        ("$.orders[*].id", [1, 2, 3]),
        ("$.orders[2,0].id", [3, 1]),
        ("$..id", [1, 2, 3]),
        ("$['a b']['c/d'][0]", [1]),
        ('$["a b"].*', [[1, [2, [3]]], None]),
        ("$.orders[?@.total > 10].id", [2, 3]),
        ("$.orders[?@.total > 10 && @.state == 'open'].id", [2]),
        ("$.orders[?@.state == 'it\\'s done'].id", [3]),
        ('$.orders[?@.state == "it\'s done"].id', [3]),
        ("$.orders[?@.nothing].id", []),
        ("$.orders[?@.nothing != 1].id", [1, 2, 3]),
        ("$.orders[?@.total < 'a'].id", []),
        ("$.orders[?@.id == true].id", []),
    ],
)
def test_paths_select_in_document_order(ask: Any, path: str, values: list[Any]) -> None:
    found = ask("json::query", document=SHOP, path=path).data
    assert [one["value"] for one in found["matches"]] == values


def test_every_match_says_where_it_is_and_can_be_asked_for_again(ask: Any) -> None:
    for one in ask("json::query", document=SHOP, path="$..*").data["matches"]:
        again = ask("json::query", document=json.dumps(SHOP), path=one["pointer"]).data
        assert again["matches"] == [one]


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("/orders/9", "not_found", "array of 3"),
        ("/nothing", "not_found", "`orders`"),
        ("/orders/-", "not_found", "no `-`"),
        ("/orders/01", "not_found", "no `01`"),
        ("/orders/0/id/x", "not_found", "single value"),
        ("orders", "validation_failed", "neither a pointer"),
        ("/a~2", "validation_failed", "~0"),
        ("$.", "validation_failed", "character 3"),
        ("$.orders[", "validation_failed", "missing"),
        ("$.orders[?(@.id)]", "validation_failed", "begins with `@`"),
        ("$.orders[?@.id == ]", "validation_failed", "missing"),
        ("$orders", "validation_failed", "should follow"),
        ("$['x", "validation_failed", "does not end"),
        ("$" + ".a" * 60, "validation_failed", "steps"),
        ("$" + "[?@" * 100, "validation_failed", ""),
        ("$" + "a" * 1001, "validation_failed", "the most is"),
    ],
)
def test_what_is_not_there_or_no_path_is_an_error_that_says_what_was_found(
    ask: Any, path: str, error: str, said: str
) -> None:
    answer = ask("json::query", document=SHOP, path=path)
    assert (answer.success, answer.error_type) == (False, error)
    assert said in answer.error_message


@pytest.mark.parametrize("document", ["{bad", "[NaN]", "", "[1] 2"])
def test_text_that_is_no_json_is_refused(ask: Any, document: str) -> None:
    assert ask("json::query", document=document, path="$").error_type == "parse_error"


def test_depth_work_and_matches_are_bounded(ask: Any) -> None:
    assert ask("json::query", document="[" * 1000 + "]" * 1000, path="$").error_type == "limit"
    wide = json.dumps([[0] * 400] * 400)
    assert ask("json::query", document=wide, path="$[?@[9] > 1]").success
    cut = ask("json::query", document=wide, path="$..*", limit=3).data
    assert (cut["count"], cut["partial"]) == (3, True)


def test_a_path_that_multiplies_is_ended() -> None:
    with pytest.raises(ToolFailed, match="looks at more than") as refused:
        list(select_nodes([[[[[0] * 20] * 20] * 20] * 20], "$..*..*..*"))
    assert refused.value.error_type == "limit"


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_values)
def test_every_place_of_a_document_leads_to_its_value(document: Any) -> None:
    for place, value in select_nodes(document, "$..*"):
        assert query.handler(document=document, path=place)["matches"] == [
            {"pointer": place, "value": value}
        ]


@given(st.text(alphabet="$.[]*?@&=<>!:,'\"ab01- ", max_size=30))
def test_whatever_is_written_selects_or_is_refused(path: str) -> None:
    try:
        list(select_nodes(SHOP, "$" + path))
    except ToolFailed as refused:
        assert refused.message.startswith("`path`")
