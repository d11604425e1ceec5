"""Functionary 3.2: `>>>all` stands before text, `>>>name` with JSON below it is a call.

The prompt ends with the first `>>>`, so a reply may begin with the name alone. That is read as
text.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.core.calls import ToolCall

from . import lenient_json
from .dialect import BodyEnding, CallForm, FoundCall, ParsedBody
from .offered_tools import OfferedTools

_NEXT = r"(?=>>>[A-Za-z_][\w.:-]{0,63}\n)"


def _read(opener: str, body: str, ending: BodyEnding, tools: OfferedTools) -> ParsedBody | None:
    name = opener[3:].strip()
    value = lenient_json.decode_leniently_at(body, 0)
    if value is None or not isinstance(value[0], dict):
        if ending is BodyEnding.CLOSED:
            return None
        return ParsedBody([FoundCall(name, body.strip(), cut=ending is BodyEnding.OPEN)])
    decoded, end, repairs = value
    call = FoundCall(name, lenient_json.encode_arguments(decoded), tuple(repairs))
    if ending is BodyEnding.OPEN:
        return ParsedBody([call], rest=end)
    rest = body[end:]
    return ParsedBody([call, rest] if rest.strip() else [call])


FORM = CallForm("functionary", r">>>[A-Za-z_][\w.:-]{0,63}\n(?=\{)", lambda _: _NEXT, _read)


def render(calls: Sequence[ToolCall]) -> str:
    """Write calls as Functionary 3.2 does."""
    return "\n".join(f">>>{call.tool}\n{call.arguments}" for call in calls)
