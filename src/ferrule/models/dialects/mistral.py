"""Mistral's bracket tokens.

    [TOOL_CALLS][{"name": "f", "arguments": {…}, "id": "…"}]      v3, Nemo, Small 2409 to 3.1
    [TOOL_CALLS]f[ARGS]{…}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{…}      v11 and later (Magistral,
                                                                  Devstral, 3.2)

Nothing closes a call: it ends with its JSON. Source: mistral-common's tokenizers and the chat
templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.core.calls import ToolCall

from . import lenient_json
from .call_shapes import read_json_calls
from .dialect import BodyEnding, CallForm, FoundCall, ParsedBody
from .offered_tools import OfferedTools
from .pythonic import render_json_list

_HEAD = re.compile(
    r"\s*([A-Za-z_][\w.:/-]*)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(\[ARGS\])?\s*(?=\{|\[|\Z|\")"
)


def _read(opener: str, body: str, ending: BodyEnding, tools: OfferedTools) -> ParsedBody | None:
    text = body.lstrip()
    if text.startswith(("[{", "{", "[ {", "[\n")):
        return read_json_calls(body, ending)
    head = _HEAD.match(body)
    if head is None:
        return None
    name = head.group(1)
    at = head.end()
    value = lenient_json.decode_leniently_at(body, at)
    if value is not None and isinstance(value[0], (dict, str)):
        decoded, end, repairs = value
        parsed = ParsedBody(
            [FoundCall(name, lenient_json.encode_arguments(decoded), tuple(repairs))]
        )
        if ending is BodyEnding.OPEN:
            parsed.rest = end
        elif body[end:].strip():
            parsed.items.append(body[end:])
        return parsed
    if ending is BodyEnding.CLOSED or (not head.group(2) and not body[at:].startswith("{")):
        return None
    text = body[at:].strip()
    return ParsedBody([FoundCall(name, text, cut=ending is BodyEnding.OPEN)]) if text else None


FORM = CallForm("mistral", r"\[TOOL_CALLS\]", lambda _: r"(?=\[TOOL_CALLS\])", _read)


def render_list(calls: Sequence[ToolCall]) -> str:
    """Write calls in the older form, as one JSON list."""
    return f"[TOOL_CALLS]{render_json_list(calls)}"


def render_args(calls: Sequence[ToolCall]) -> str:
    """Write calls in the newer form, each with its own mark."""
    return "".join(f"[TOOL_CALLS]{call.tool}[ARGS]{call.arguments}" for call in calls)
