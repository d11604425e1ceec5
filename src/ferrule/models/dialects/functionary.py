"""Functionary 3.2: `>>>all` stands before text, `>>>name` with JSON below it is a call.

The prompt ends with the first `>>>`, so a reply may begin with the name alone. That is read as
text.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.core.calls import Call

from . import lenient_json
from .dialect import Ending, Form, Found, Parsed, Tools

_NEXT = r"(?=>>>[A-Za-z_][\w.:-]{0,63}\n)"


def _read(opener: str, body: str, ending: Ending, tools: Tools) -> Parsed | None:
    name = opener[3:].strip()
    value = lenient_json.value_at(body, 0)
    if value is None or not isinstance(value[0], dict):
        if ending is Ending.CLOSED:
            return None
        return Parsed([Found(name, body.strip(), cut=ending is Ending.OPEN)])
    decoded, end, repairs = value
    call = Found(name, lenient_json.arguments(decoded), tuple(repairs))
    if ending is Ending.OPEN:
        return Parsed([call], rest=end)
    rest = body[end:]
    return Parsed([call, rest] if rest.strip() else [call])


FORM = Form("functionary", r">>>[A-Za-z_][\w.:-]{0,63}\n(?=\{)", lambda _: _NEXT, _read)


def render(calls: Sequence[Call]) -> str:
    """Write calls as Functionary 3.2 does."""
    return "\n".join(f">>>{call.tool}\n{call.arguments}" for call in calls)
