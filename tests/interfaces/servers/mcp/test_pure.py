"""What is decided without a client: schemas of results, references, places in addresses."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import jsonschema_rs
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from hypothesis import given
from hypothesis import strategies as st

from ferrule import tool
from ferrule.core.calls import ToolResult
from ferrule.servers.mcp import Template
from ferrule.servers.mcp.offers import Offers
from ferrule.servers.mcp.requests import SuspendedRequests
from ferrule.servers.mcp.results import find_reference, to_call_result
from ferrule.servers.mcp.tool_list import TRUNCATED_SCHEMA, output_schema

REFERENCE = "art-" + "ab" * 32


@tool(side_effect="none")
def book(title: str) -> dict[str, str]:
    """A book."""
    return {"title": title}


def result(data: Any, **more: Any) -> ToolResult:
    return ToolResult("1", "book", True, data, **more)


@given(
    st.dictionaries(
        st.text(max_size=8), st.one_of(st.text(max_size=8), st.integers(), st.none()), max_size=4
    ),
    st.booleans(),
)
def test_structured_content_always_fits_the_schema_that_was_listed(
    data: dict[str, Any], partial: bool
) -> None:
    schema = output_schema(book, modern=False)
    answer = to_call_result(result(data, partial=partial, size=10), book, modern=False)
    assert jsonschema_rs.is_valid(schema, json.loads(json.dumps(answer["structuredContent"])))
    assert answer["content"][0]["type"] == "text"


def test_a_value_that_was_cut_is_told_from_one_that_was_not() -> None:
    cut = to_call_result(result('{"title": "Wal', partial=True, size=100), book, modern=True)[
        "structuredContent"
    ]
    assert cut == {"truncated": True, "size_bytes": 100, "text": '{"title": "Wal'}
    assert jsonschema_rs.is_valid(TRUNCATED_SCHEMA, cut)
    stub = to_call_result(result({"artifact": REFERENCE}, partial=True), book, modern=True)[
        "structuredContent"
    ]
    assert stub == {"artifact": REFERENCE, "truncated": True}
    assert to_call_result(result({"title": "Walden"}), book, modern=True)["structuredContent"] == {
        "title": "Walden"
    }


def test_a_schema_that_refers_to_itself_is_not_moved_to_where_it_means_something_else() -> None:
    from dataclasses import replace

    assert book.output is not None

    class Own:
        schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"next": {"$ref": "#"}}}

        def encode(self, value: Any) -> tuple[Any, list[str]]:
            return value, []

    assert output_schema(replace(book, output=Own()), modern=True) is None
    Own.schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"type": "string"}},
    }
    moved = output_schema(replace(book, output=Own()), modern=True)
    assert (
        moved is not None
        and jsonschema_rs.is_valid(moved, {"a": "x"})
        and not jsonschema_rs.is_valid(moved, {"a": 1})
    )


def test_references_are_taken_from_what_was_kept_and_not_from_what_a_tool_says() -> None:
    assert find_reference(result({"artifact": REFERENCE}, partial=True)) == REFERENCE
    assert (
        find_reference(result("x", partial=True, notes=(f"[the whole is kept as {REFERENCE}]",)))
        == REFERENCE
    )
    assert find_reference(result({"artifact": REFERENCE})) == ""
    assert find_reference(result({"artifact": f"{REFERENCE}/.."}, partial=True)) == ""


@given(st.from_regex(r"[^/%]{1,12}", fullmatch=True))
def test_places_of_a_template_are_found_again(value: str) -> None:
    template = Template("test://a+b/{one}/data.{two}", "t", lambda one, two: one)
    assert template.match(f"test://a+b/{value}/data.7") == {"one": value, "two": "7"}
    assert template.match(f"test://aab/{value}/data.7") is None
    assert template.match(f"test://a+b/{value}/x/data.7") is None


async def test_completions_are_bounded() -> None:
    offers = Offers(complete=lambda reference, name, typed: [str(at) for at in range(150)])
    completion = (await offers.complete_argument({}, "x", ""))["completion"]
    assert len(completion["values"]) == 100 and completion["total"] == 150 and completion["hasMore"]


def test_no_more_requests_wait_than_there_is_room_for_and_a_name_is_good_once() -> None:
    class Waiting:
        is_done = False

    kept, first = SuspendedRequests(1), Waiting()
    name: Any = kept.keep(first)  # pyright: ignore[reportArgumentType]  all that is asked of one here
    assert kept.keep(Waiting()) is None  # pyright: ignore[reportArgumentType]  as above
    assert kept.take("other") is None and kept.take(name) is first and kept.take(name) is None
    again: Any = kept.keep(first)  # pyright: ignore[reportArgumentType]  as above
    first.is_done = True
    assert kept.keep(Waiting()) is not None and kept.take(again) is None  # pyright: ignore[reportArgumentType]  as above
