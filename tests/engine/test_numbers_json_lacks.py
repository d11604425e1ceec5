"""Numbers that JSON does not have, from tools of every kind: results and journals stay JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, tool
from ferrule.connectors.mcp.results import content_value
from ferrule.engine.result_bounds import bound_text
from ferrule.storage.export.jsonl import export_jsonl
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.code_mode import code_tool
from grouped_options import grouped


@dataclass
class Measured:
    a: float


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.inf, "Infinity"),
        ([-math.inf, 1.5], '["-Infinity",1.5]'),
        ({"a": {"b": (math.nan,)}}, '{"a":{"b":["NaN"]}}'),
        (Measured(math.inf), '{"a":"Infinity"}'),
        ({math.inf: 1}, '{"inf":1}'),
    ],
)
def test_a_number_that_json_lacks_is_given_as_text_with_a_note(value: Any, text: str) -> None:
    bounded = bound_text(value, 10_000)
    shown = bounded.data if isinstance(bounded.data, str) else json.dumps(bounded.data)
    assert shown.replace(" ", "") == text
    assert any("JSON does not have" in note for note in bounded.notes) == ("inf" not in text)


def test_a_text_that_is_no_json_stays_the_text_that_it_is() -> None:
    assert content_value([{"type": "text", "text": '{"a":NaN}'}]) == '{"a":NaN}'


@tool(side_effect="read")
def measure() -> dict[str, Any]:
    """Measure what cannot be measured."""
    return {"a": [math.inf, math.nan]}


@tool(side_effect="read")
def promise() -> Measured:
    """Return what its type speaks of."""
    return Measured(-math.inf)


@pytest.mark.usefixtures("rust_runtimes")
async def test_a_journal_of_such_results_is_exported_as_json(tmp_path: Path) -> None:
    tools = [measure, promise, code_tool([measure])]
    agent = Agent("scripted:x", tools, **grouped(journal=tmp_path / "j.db", allow=["*"]))
    session = agent.session()
    measured = await session.call("measure")
    promised = await session.call("promise")
    script = await session.call("run_code", code="measure()")
    await session.close()
    assert measured.data == {"a": ["Infinity", "NaN"]}
    assert "JSON does not have" in measured.to_text()
    assert promised.data == {"a": "-Infinity"}
    assert script.data["value"] == {"a": ["Infinity", "NaN"]}
    with SqliteJournal(tmp_path / "j.db") as journal:
        lines = list(export_jsonl(journal.records(session.id)))
    assert sum("Infinity" in line for line in lines) >= 3
    for line in lines:
        json.loads(line, parse_constant=refuse)
