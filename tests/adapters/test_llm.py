"""Tools of `llm` as ours. Plugins from PyPI are tried by `make lab NAME=adapters`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("llm", reason="`llm` is not installed here: `make lab NAME=adapters` has it")

import llm

from ferrule import Agent
from ferrule.adapters.llm import convert_toolbox, convert_tools
from media_samples import make_png


class Counter(llm.Toolbox):
    def __init__(self, start: int) -> None:
        self.value = start
        self.thread = threading.get_ident()

    def add(self, number: int = 1) -> str:
        """Add a number."""
        assert threading.get_ident() == self.thread
        self.value += number
        return str(self.value)


async def test_functions_and_tools_keep_their_schema_and_are_given_no_defaults() -> None:
    given: list[dict[str, Any]] = []

    async def note(text: str, **more: Any) -> str:
        """Note it."""
        given.append({"text": text, **more})
        return "noted"

    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "loud": {"type": "boolean", "default": True}},
        "required": ["text"],
    }
    theirs = llm.Tool("note it", "Note it.", schema, note)
    (tool,) = convert_tools([theirs])
    assert tool.name == "note_it" and tool.is_async and tool.arguments.schema == schema
    session = Agent("scripted:none", [tool]).session()
    assert (await session.call("note_it", text="x")).data == "noted"
    assert str((await session.call("note_it")).error_type) == "validation_failed"
    assert given == [{"text": "x"}]


async def test_a_toolbox_is_made_and_runs_in_one_thread() -> None:
    session = Agent("scripted:none", convert_toolbox(lambda: Counter(40))).session()
    assert (await session.call("Counter_add", number=1)).data == "41"
    assert (await session.call("Counter_add")).data == "42"


async def test_attachments_are_media() -> None:
    def draw() -> Any:
        """Draw."""
        picture = llm.Attachment(type="image/png", content=make_png())
        return llm.ToolOutput(output="a square", attachments=[picture])

    session = Agent("scripted:none", convert_tools([draw])).session()
    result = await session.call("draw")
    assert result.media[0].mime == "image/png" and "a square" in result.data
