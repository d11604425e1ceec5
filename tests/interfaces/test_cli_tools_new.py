"""`ferrule tools new NAME FIELD:TYPE...`: what a field may say, and that what is made of it works
at once.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from ferrule.cli.tools.fields import Field, FieldType, parse_field
from ferrule.cli.tools.files import workbench_for_tests
from ferrule.cli.tools.templates import render_python_tool, render_tool_file
from ferrule.core.errors import ConfigError
from ferrule.extensions.checks.tool_cases import run_cases
from ferrule.extensions.checks.tool_file import check_tool
from ferrule.extensions.tool_files.tool_file import parse_tool
from ferrule.tools.definition import Tool

FIELDS = (
    "city:string,The city, not the country",
    "unit:c|f=c,Celsius or Fahrenheit",
    "days:int?",
    'tags:list[string]=["a, b", "c"],What it is "about"',
    "exact:bool=false",
)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a:string", Field("a", FieldType("string"), True)),
        ("a:text,b", Field("a", FieldType("string"), True, None, "b")),
        ("a:int?", Field("a", FieldType("integer"), False)),
        ("a:int=3", Field("a", FieldType("integer"), False, 3)),
        ("a:float?=3,x", Field("a", FieldType("number"), False, 3, "x")),
        ("a:bool=true", Field("a", FieldType("boolean"), False, True)),
        ("a:string=", Field("a", FieldType("string"), False, "")),
        ('a:string="x, y",z', Field("a", FieldType("string"), False, "x, y", "z")),
        ("a:x|y z=y z", Field("a", FieldType("string", ("x", "y z")), False, "y z")),
        (
            "a:list[int]=[1,2],d",
            Field("a", FieldType("array", items=FieldType("integer")), False, [1, 2], "d"),
        ),
        (
            "a:list[x|y]",
            Field("a", FieldType("array", items=FieldType("string", ("x", "y"))), True),
        ),
    ],
)
def test_a_field_is_read(text: str, field: Field) -> None:
    assert parse_field(text) == field


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "name and a colon"),
        ("a b:int", "`a b` is not a valid name"),
        ("a:strin", "did you mean `string`"),
        ("a:", "there is no type"),
        ("a:x|x", "different words"),
        ("a:x||y", "different words"),
        ("a:int=x", "is not of type int"),
        ("a:int=true", "is not of type int"),
        ("a:bool=1", "is not of type bool"),
        ("a:x|y=z", "is not of type Literal"),
        ("a:list[int]=[1.5]", "is not of type list[int]"),
        ("a:float=NaN", "is not of type float"),
        ('a:string="x', "not JSON"),
        ("a:int?3", "does not belong there"),
        ("a:int,\x1b[2J", "invisible characters"),
    ],
)
def test_a_field_that_cannot_be_read_says_why_and_what_to_write(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        parse_field(text)
    assert (
        why in raised.value.detail and "name:type[?][=default][,description]" in raised.value.hint
    )


def test_a_tool_file_with_fields_is_valid_and_passes_its_own_tests(
    ferrule: Any, folder: Path
) -> None:
    assert ferrule("tools", "new", "weather", *FIELDS, "--description", "The weather.").code == 0
    assert ferrule("tools", "check", "--strict").err == "1 file, 0 errors, 0 warnings\n"
    assert [line[:4] for line in ferrule("tools", "test", "weather").lines] == ["ok  ", "ok  "]
    ferrule("trust", "--yes")
    shown = ferrule("tools", "show", "weather").out
    assert "The weather." in shown and '"Celsius or Fahrenheit"' in shown
    called = ferrule("tools", "call", "weather", "city=Ghent", "days=2").out
    assert called == '{"city":"Ghent","unit":"c","days":2,"tags":["a, b","c"],"exact":false}\n'
    wrong = ferrule("tools", "call", "weather", "city=Ghent", "unit=k")
    assert "validation_failed" in wrong.err


def test_a_python_tool_has_a_test_that_passes(
    ferrule: Any, folder: Path, environment: dict[str, str]
) -> None:
    made = ferrule("tools", "new", "weather", *FIELDS, "--python")
    assert (
        made.code == 0
        and "wrote weather.py" in made.err
        and "wrote tests/test_weather.py" in made.err
    )
    again = ferrule("tools", "new", "weather", "--python")
    assert again.code == 2 and "nothing was written" in again.err
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error")
    ran = subprocess.run(
        [sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout
    assert (
        sorted(os.listdir()) == ["note.txt", "tests", "weather.py"] or "__pycache__" in os.listdir()
    )


@pytest.mark.parametrize("words", [("in",), ("a-b",), ("fine", "class:int")])
def test_a_name_that_python_does_not_take_is_refused_before_anything_is_written(
    ferrule: Any, folder: Path, words: tuple[str, ...]
) -> None:
    refused = ferrule("tools", "new", "--python", *words)
    assert refused.code == 2 and "cannot be a name in Python" in refused.err
    assert os.listdir() == ["note.txt"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("json", "--python"), "Python's own module `json`"),
        (("types", "--python"), "Python's own module `types`"),
        (("write_file",), "a tool that ships"),
        (("run_command", "--python"), "a tool that ships"),
    ],
)
def test_a_name_that_is_somebody_elses_is_refused_and_nothing_is_written(
    ferrule: Any, folder: Path, words: tuple[str, ...], why: str
) -> None:
    refused = ferrule("tools", "new", *words)
    assert refused.code == 2
    assert why in refused.err
    assert os.listdir() == ["note.txt"]


def test_a_field_that_comes_twice_and_a_description_that_cannot_be_seen_are_refused(
    ferrule: Any, folder: Path
) -> None:
    assert "two fields `a`" in ferrule("tools", "new", "t", "a:int", "a:int").err
    assert ferrule("tools", "new", "t", "--description", "a\nb").code == 2
    assert os.listdir() == ["note.txt"]


# ---- what is made of any fields

WORDS = some.text("abc |", min_size=1).map(lambda text: text.strip().replace("|", "x") or "a")
PLAIN = some.sampled_from([FieldType(name) for name in ("string", "integer", "number", "boolean")])
CHOICES = some.lists(WORDS, min_size=2, max_size=4, unique=True).map(
    lambda all: FieldType("string", tuple(all))
)
ITEMS = PLAIN | CHOICES
KINDS = ITEMS | ITEMS.map(lambda kind: FieldType("array", items=kind))
TEXTS = some.text(
    some.characters(exclude_categories=("C", "Z")) | some.just(" "), max_size=20
).filter(str.isprintable)


@some.composite
def any_fields(draw: some.DrawFn) -> tuple[Field, ...]:
    names = draw(
        some.lists(some.sampled_from(["a", "b", "args", "run", "_", "n1"]), max_size=4, unique=True)
    )
    made: list[Field] = []
    for name in names:
        kind, how = draw(KINDS), draw(some.sampled_from(["required", "optional", "default"]))
        default = kind.make_sample() if how == "default" else None
        if how == "default" and kind == FieldType("string"):
            default = draw(TEXTS)
        made.append(Field(name, kind, how == "required", default, draw(TEXTS).strip()))
    return tuple(made)


@settings(max_examples=40, deadline=None)
@given(any_fields(), TEXTS)
def test_a_file_made_of_any_fields_says_them(fields: tuple[Field, ...], said: str) -> None:
    text = render_tool_file(fields, said.strip() or "x")
    assert asyncio.run(check_tool(text.encode(), "t.md")) == []
    made = parse_tool(text.encode(), "t.md")
    properties = {field.name: field.type.to_schema() for field in fields}
    found = {
        name: {key: one[key] for key in ("type", "enum", "items") if key in one}
        for name, one in made.schema["properties"].items()
    }
    assert found == properties
    assert made.schema.get("required", []) == [field.name for field in fields if field.required]


def test_names_that_mean_something_in_a_script_are_fine_as_fields() -> None:
    fields = tuple(
        Field(name, FieldType("integer"), True) for name in ("args", "in", "def", "load", "run")
    )
    made = parse_tool(render_tool_file(fields).encode(), "t.md")
    outcomes = asyncio.run(run_cases(made, workbench_for_tests(), others=[made]))
    assert [outcome.passed for outcome in outcomes] == [True]


@settings(max_examples=40, deadline=None)
@given(any_fields(), TEXTS)
def test_a_module_made_of_any_fields_is_a_tool_that_takes_them(
    fields: tuple[Field, ...], said: str
) -> None:
    module = ModuleType("made")
    exec(
        compile(render_python_tool("made", fields, said.strip()), "made.py", "exec"),
        module.__dict__,
    )
    made: Tool = module.made
    values = {field.name: field.type.make_sample() for field in fields}
    checked = made.arguments.check(values)
    assert not checked.problems
    assert set(made.arguments.schema.get("required", [])) == {
        field.name for field in fields if field.required
    }
    described = made.arguments.schema["properties"]
    assert {name: one.get("description", "") for name, one in described.items()} == {
        field.name: field.description for field in fields
    }
