"""The arguments of a call are read one way, wherever they are read."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.core.calls import read_arguments
from ferrule.core.errors import ToolFailed
from ferrule.engine.dispatcher import parse_arguments

TEXTS: list[tuple[str, dict[str, Any] | None]] = [
    ("", {}),
    (" \n", {}),
    ("null", {}),
    ('"null"', {}),
    ('{"a": 1}', {"a": 1}),
    ('"{\\"a\\": 1}"', {"a": 1}),
    ('{"a": 1, "a": 2}', {"a": 2}),
    ('"text"', None),
    ("[1]", None),
    ('{"a": 1', None),
    ("[" * 100_000, None),
    ("1" * 10_000, None),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=[text[:12] for text, _ in TEXTS])
def test_what_is_shown_of_a_call_is_what_is_carried_out(
    text: str, expected: dict[str, Any] | None
) -> None:
    carried_out: dict[str, Any] | None
    try:
        carried_out = parse_arguments(text)[0]
    except ToolFailed:
        carried_out = None
    assert read_arguments(text) == carried_out == expected
