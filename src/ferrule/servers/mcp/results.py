"""Convert a result to the protocol's JSON, for `tools/call`.

    success    text: what one of our models would read; `structuredContent` if the tool declares
               its output; blocks that the tool showed
    failure    `isError`, and the result object as text
    large      the stub, and a link to the whole result, readable in parts (`artifacts`)

A value that was cut, stored as an artifact or changed by a hook no longer fits the tool's schema.
The structured content then says so, with `"truncated": true` (`tool_list.CUT`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ferrule.core.calls import ToolResult
from ferrule.core.media import MediaReference
from ferrule.tools.definition import Tool

from .blocks import Block, audio, embed_content, image, text
from .tool_list import output_schema

_REFERENCE = re.compile(r"art-[0-9a-f]{64}")


def to_call_result(
    result: ToolResult,
    tool: Tool | None,
    *,
    modern: bool,
    shown: Sequence[Block] = (),
    links: Sequence[Block] = (),
) -> dict[str, Any]:
    """Return a tool's result as the protocol's result of `tools/call`."""
    if not result.success:
        return {"content": [text(result.to_text())], "isError": True}
    blocks = [*shown] if result.data is None and shown else [text(result.to_text()), *shown]
    answer: dict[str, Any] = {"content": [*blocks, *links], "isError": False}
    if (
        tool is not None
        and tool.output is not None
        and output_schema(tool, modern=modern) is not None
    ):
        answer["structuredContent"] = _structured_content(result, tool)
    return answer


def to_block(one: MediaReference, data: bytes) -> Block:
    """Return a medium as a block: a picture, a sound, or a resource with the document."""
    if one.media_kind == "image":
        return image(data, one.mime)
    if one.media_kind == "audio":
        return audio(data, one.mime)
    content = data.decode() if one.mime == "text/plain" else data
    return embed_content(f"ferrule-media:{one.sha256}", content, one.mime)


def find_reference(result: ToolResult) -> str:
    """Return the reference of the artifact that holds a whole result, or "".

    If the data only looks like a stub, the reference leads nowhere.
    """
    if not result.partial:
        return ""
    data: Any = result.data
    if isinstance(data, Mapping):
        stub = cast("Mapping[str, Any]", data)
        found = _REFERENCE.fullmatch(str(stub.get("artifact", "")))
        return found[0] if found else ""
    said = _REFERENCE.search("\n".join(result.notes))
    return said[0] if said else ""


def _structured_content(result: ToolResult, tool: Tool) -> Any:
    assert tool.output is not None
    if not result.partial:
        value, problems = tool.output.encode(result.data)
        if not problems:
            return value
    data: Any = result.data
    if isinstance(data, Mapping):
        return {**cast("Mapping[str, Any]", data), "truncated": True}
    return {"truncated": True, "size_bytes": result.size, "text": data}
