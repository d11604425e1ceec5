"""`ferrule tools show` says whether a tool's schema can be sent strict, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_showing_a_tool_says_what_strictness_makes_of_its_schema(
    folder: Path, ferrule: Any
) -> None:
    said = ferrule("tools", "show", "read_file").out.partition("\nstrict: ")[2].splitlines()
    assert said[0] in ("clean", "rewritten")
    assert any(line.endswith("is optional and may be null instead") for line in said[1:])
