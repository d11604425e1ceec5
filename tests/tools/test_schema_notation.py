"""The short notation for schemas."""

from __future__ import annotations

import pytest

from ferrule.core.errors import ConfigError
from ferrule.tools.schema_notation import parse_schema_notation


def test_fields_have_types_and_descriptions() -> None:
    expected = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "description": "in years"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "tall": {"type": "boolean"},
            "size": {"type": "number"},
        },
        "required": ["name", "age", "tags", "tall", "size"],
        "additionalProperties": False,
    }
    text = "name, age int: in years, tags [str], tall bool, size float"
    assert parse_schema_notation(text) == expected
    lines = "name\nage int: in years\n\n tags [str]\ntall bool\nsize float\n"
    assert parse_schema_notation(lines) == expected


def test_commas_may_stand_in_descriptions_of_lines() -> None:
    schema = parse_schema_notation("name: first, then last\nage int")
    assert schema["properties"]["name"]["description"] == "first, then last"


@pytest.mark.parametrize("text", ["", "1a", "a wat", "a [str", "a, a", "a int int"])
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_schema_notation(text)
