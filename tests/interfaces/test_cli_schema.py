"""`ferrule run --schema`: the JSON alone on standard output, or exit code 4 with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GOOD = '{"name":"Ada","age":36}'


def test_a_notation_gives_the_json_alone(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    model = script(a_call("list_files", say="Let me look."), {"say": f"Here it is: {GOOD}"})
    ran = ferrule("run", "-m", model, "--schema", "name str, age int", "who?")
    assert (ran.code, ran.out) == (0, f"{GOOD}\n")
    assert "list_files" in ran.err


def test_a_file_and_a_type_are_schemas_too(folder: Path, ferrule: Any, script: Any) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    (folder / "person.json").write_text(json.dumps(schema))
    types = "from dataclasses import dataclass\n@dataclass\nclass Person:\n    name: str\n    age: int\n"
    (folder / "people.py").write_text(types)
    for given in ("person.json", "people:Person"):
        ran = ferrule("run", "-m", script({"say": GOOD}), "--schema", given, "who?")
        assert (ran.code, ran.out) == (0, f"{GOOD}\n")


@pytest.mark.parametrize("given", ["name, age int", "people:Person"])
def test_multi_gives_a_list(folder: Path, ferrule: Any, script: Any, given: str) -> None:
    types = "from typing import TypedDict\nclass Person(TypedDict):\n    name: str\n    age: int\n"
    (folder / "people.py").write_text(types)
    model = script({"say": f'{{"value":[{GOOD},{GOOD}]}}'})
    ran = ferrule("run", "-m", model, "--schema-multi", given, "who?")
    assert (ran.code, ran.out) == (0, f"[{GOOD},{GOOD}]\n")


@pytest.mark.parametrize("mode", ["schema", "prompt", "grammar"])
def test_without_a_value_that_fits_it_is_4_with_the_reason(
    folder: Path, ferrule: Any, script: Any, mode: str
) -> None:
    model = script(*[{"say": '{"name":"Ada","age":"old"}'}] * 3)
    options = ["--no-tools", "--output-mode", mode]
    ran = ferrule("run", "-m", model, *options, "--schema", "name, age int", "who?")
    assert (ran.code, ran.out) == (4, "")
    assert "no value that fits after 3 answers" in ran.err and "`age`" in ran.err


def test_one_object_has_the_value_as_json(folder: Path, ferrule: Any, script: Any) -> None:
    ran = ferrule("run", "--json", "-m", script({"say": GOOD}), "--schema", "name, age int", "who?")
    assert json.loads(ran.out)["output"] == json.loads(GOOD)
    ran = ferrule("run", "--json", "-m", script({"say": "hi"}), "hello")
    assert "output" not in json.loads(ran.out)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("name wat", "there is no type `wat`"),
        ("a, a", "is there twice"),
        ("no!", "is not a field"),
        ("", "no fields"),
        ("missing.json", "cannot be read"),
        ("nowhere:Type", "no module `nowhere`"),
        ("json:Nothing", "has no `Nothing`"),
    ],
)
def test_what_is_no_schema_is_an_error(
    folder: Path, ferrule: Any, script: Any, given: str, said: str
) -> None:
    if not given:
        given = " "
    ran = ferrule("run", "-m", script(), "--schema", given, "who?")
    assert ran.code == 2 and said in ran.err
    assert ferrule("run", "--schema", "a", "--schema-multi", "a", "x").code == 2


def test_a_file_of_the_folder_does_not_pose_as_another_module(
    folder: Path, ferrule: Any, script: Any
) -> None:
    (folder / "json.py").write_text("raise SystemExit('imported')\n")
    ran = ferrule("run", "-m", script(), "--schema", "json:Nothing", "who?")
    assert ran.code == 2 and "has no `Nothing`" in ran.err
