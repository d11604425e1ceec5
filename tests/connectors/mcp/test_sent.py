"""What a server is sent is what the model wrote, and what it refuses is its own refusal."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest_mcp import HERE, Place

from ferrule.connectors.mcp import McpServer
from ferrule.core.calls import ErrorType

WRITTEN: tuple[dict[str, Any], ...] = (
    {"day": "monday"},
    {"day": "monday", "nested": {}},
    {"day": "monday", "listed": [{}, {"a": 2}], "nothing": None},
    {"day": "monday", "insurance_id": "7", "unknown": [1, {"x": None}]},
)


@pytest.fixture
def recorder(place: Place) -> McpServer:
    shutil.copy(HERE / "recording_server.py", place.root)
    program = str(Path(sys.prefix) / "bin" / "python")
    return McpServer(
        "recorder",
        command=(program, "recording_server.py"),
        readable=(sys.prefix,),
        writable=(str(place.root),),
        connect_timeout=120,
    )


async def test_a_server_receives_what_the_model_wrote_and_no_default_of_its_schema(
    place: Place, recorder: McpServer
) -> None:
    session = place.session(await place.servers(recorder))
    for arguments in WRITTEN:
        result = await session.call("recorder__book", **arguments)
        assert result.success, result
    received = [
        json.loads(line) for line in (place.root / "received.jsonl").read_text().splitlines()
    ]
    assert received == list(WRITTEN)


async def test_a_servers_own_no_is_an_error_of_the_tool_and_not_of_ours(
    place: Place, recorder: McpServer
) -> None:
    session = place.session(await place.servers(recorder))
    result = await session.call("recorder__book", day="never")
    assert (result.success, result.error_type) == (False, ErrorType.TOOL_ERROR)
    assert "User not found" in (result.error_message or "")
    assert result.to_envelope()["error_type"] == "tool_error"
