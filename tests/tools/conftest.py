"""Small things that the tests about tools share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from ferrule.tools.definition import Tool


@pytest.fixture
def says_the_schema() -> Callable[[Tool, dict[str, Any]], bool]:
    """What an independent JSON Schema validator says about these arguments."""

    def valid(tool: Tool, arguments: dict[str, Any]) -> bool:
        schema = json.loads(tool.schema_json())
        jsonschema_rs.meta.validate(schema)
        return jsonschema_rs.validator_for(schema).is_valid(arguments)

    return valid
