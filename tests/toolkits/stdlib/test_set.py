"""The typed tools as a set: names, schemas, what they declare, and what importing them loads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, TypedDict

import pytest

from ferrule.core.errors import ConfigError
from ferrule.toolkits.stdlib import TOOLS, stdlib_tools
from ferrule.toolkits.stdlib.typed import RecordOutput
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Risk, SideEffect

NAMES = {
    "math::calc",
    "math::evaluate",
    "regex::match",
    "strings::count_char",
    "crypto::sha256",
    "json::query",
    "dates::add",
    "dates::between",
    "dates::describe",
    "units::convert",
    "vision::ocr",
}


def test_the_tools_have_the_names_of_the_requirement() -> None:
    assert {tool.full_name for tool in TOOLS} == NAMES
    assert len(Catalog(TOOLS).api_names()) == len(NAMES)


def test_a_set_is_chosen_by_full_name_and_by_namespace() -> None:
    assert {tool.full_name for tool in stdlib_tools()} == NAMES
    chosen = [tool.full_name for tool in stdlib_tools(["dates", "math::calc"])]
    assert chosen == ["math::calc", "dates::add", "dates::between", "dates::describe"]
    assert "vision::ocr" not in {tool.full_name for tool in stdlib_tools(disabled_tools=["vision"])}
    (renamed,) = stdlib_tools(["math::calc"], names={"math::calc": "compute"}, namespace="release")
    assert renamed.full_name == "release::compute"
    with pytest.raises(ConfigError, match="math::cal"):
        stdlib_tools(["math::cal"])


def test_all_but_the_one_that_reads_an_image_touch_nothing_and_run_unasked() -> None:
    for tool in TOOLS:
        expected = (
            (SideEffect.READ, Risk.MEDIUM) if tool.name == "ocr" else (SideEffect.NONE, Risk.SAFE)
        )
        assert (tool.side_effect, tool.risk) == expected


def test_every_tool_says_what_it_takes_and_gives() -> None:
    for tool in TOOLS:
        assert tool.output is not None
        assert tool.output.schema.get("type"), tool.full_name
        assert tool.arguments.schema["additionalProperties"] is False
        for example in tool.examples:
            assert tool.arguments.check(example["arguments"]).problems == []


def test_importing_them_loads_no_library() -> None:
    code = (
        "import sys, ferrule.toolkits.stdlib as s; s.stdlib_tools();"
        "print(sorted({'pydantic', 'jsonschema_rs', 're2', 'yaml'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"


class Inner(TypedDict):
    name: str


class Outer(TypedDict):
    count: int
    inner: list[Inner]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"count": 1, "inner": [{"name": "a"}]}, ""),
        ({"count": "1", "inner": []}, "count"),
        ({"inner": []}, "`count` is missing"),
        ({"count": 1, "inner": [], "more": 1}, "`more` is not declared"),
        ({"count": 1, "inner": [{"name": 1}]}, "inner[0].name"),
        ({"count": 1, "inner": {}}, "inner"),
        ([], "an object"),
    ],
)
def test_a_record_that_does_not_fit_its_type_is_noticed(value: Any, problem: str) -> None:
    problems = RecordOutput(Outer).encode(value)[1]
    assert any(problem in one for one in problems) if problem else problems == []
