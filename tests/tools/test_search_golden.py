"""Rankings that must stay as they are: frozen tools, frozen requests, and who was found for them.

`search_golden.json` holds tools of Ferrule's own as they were on one day, requests that people make
of them, and the best three for each by strategy. `bm25` and `hybrid` are fixed by their formulas,
behind tools whose name, summary or description is exactly what was asked.
`default` may change, but not by accident: to change it, run `python
tests/tools/test_search_golden.py`, look at the difference, and at `benchmarks/search.py` for what
it is worth.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Tool, define_tool
from ferrule.tools.search.index import ToolIndex

GOLDEN = Path(__file__).with_name("search_golden.json")
STRATEGIES = ("bm25", "hybrid", "default")
DEPTH = 3


def frozen() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def tools_of(rows: Sequence[dict[str, Any]]) -> list[Tool]:
    made: list[Tool] = []
    for row in rows:
        namespace, _, name = row["name"].rpartition("::")
        fields = {
            "parameters": row["parameters"],
            "namespace": namespace,
            "handler": lambda **_: None,
        }
        made.append(define_tool(name, row["description"], **fields))
    return made


def found(index: Any, requests: Sequence[str], strategy: str) -> list[list[str]]:
    return [[hit.name for hit in index.search(request, strategy, DEPTH)] for request in requests]


TOOLS = tools_of(frozen()["tools"])


@pytest.mark.proves("search.rankings-are-kept")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_rankings_of_real_tools_and_requests_are_as_they_were(strategy: str) -> None:
    golden = frozen()
    assert len(golden["requests"]) > 150
    assert found(ToolIndex(TOOLS), golden["requests"], strategy) == golden[strategy]


@pytest.mark.parametrize("strategy", [*STRATEGIES, "regex"])
def test_tools_that_join_are_found_as_if_they_had_always_been_there(strategy: str) -> None:
    grown = ToolIndex(TOOLS[:20])
    grown.search("read a file", strategy)
    for tool in TOOLS[20:]:
        grown.add(tool)
    whole = ToolIndex(TOOLS)
    assert grown.tools == whole.tools
    for request in (
        frozen()["requests"][::10] if strategy != "regex" else ["file|folder", "git.*branch"]
    ):
        assert grown.search(request, strategy) == whole.search(request, strategy)


@given(st.permutations(range(12)), st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_it_does_not_matter_when_a_tool_joined(order: list[int], first: int) -> None:
    index = ToolIndex([TOOLS[number] for number in order[:first]])
    index.search("show the lines of a file")
    index.add(*(TOOLS[number] for number in order[first:]))
    assert index.search("show the lines of a file") == ToolIndex(TOOLS[:12]).search(
        "show the lines of a file"
    )


def test_a_tool_that_joins_costs_what_it_is_and_not_what_is_there() -> None:
    costs: list[int] = []
    for there in (5, 40):
        index = ToolIndex(TOOLS[:there])
        index.search("anything")
        counted = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        index.add(TOOLS[45])
        sys.setprofile(None)
        costs.append(counted)
    # Words that are known already need not be taken apart again, so it may even cost less.
    assert 0 < costs[1] <= costs[0]


def test_words_that_no_tool_says_leave_nothing_behind() -> None:
    index = ToolIndex(TOOLS[:5])
    index.search("read a file")
    before = len(pickle.dumps(index._ranking))  # everything that it holds
    for number in range(50):
        index.search(f"qqxx{number} zzkk{number}yy")
    assert len(pickle.dumps(index._ranking)) - before < 1000


def test_a_tool_whose_name_is_there_is_not_taken_twice() -> None:
    index = ToolIndex(TOOLS[:3])
    index.add(*TOOLS[:3], TOOLS[3])
    assert len(index) == len(index.tools) == 4
    assert TOOLS[3].full_name in index


def frozen_by(index: type[Any], strategies: Sequence[str]) -> None:
    """Write what `index` finds. The tools and requests in the file stay."""
    golden = frozen()
    made = index(tools_of(golden["tools"]))
    for strategy in strategies:
        golden[strategy] = found(made, golden["requests"], strategy)
    lines = [
        f'"{key}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "]"
        for key, rows in golden.items()
    ]
    GOLDEN.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    frozen_by(ToolIndex, ("default",))
