"""What an answer held and its provider would refuse in the next request, repaired.

Content that goes back as it came (`verbatim_json`) can be such that the provider refuses the whole
history with it: a tool name that it does not allow, an empty text, arguments that are no object.
A piece that is fine goes back byte for byte; only one that would be refused is written anew, with
the same rules as calls of other providers (`request_encoding`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json

from .request_encoding import arguments_as_object, fit_name
from .verbatim_json import split_elements

Piece = dict[str, Any]
Repair = Callable[[Piece], Piece | None]
"""Returns a piece that its provider takes: the same object if it does, None to leave it out."""


def repair_content(content: str, repair: Repair) -> str:
    """Return the elements of a JSON array, with commas between, that a provider takes back."""
    pieces = [_repair_piece(piece, repair) for piece in split_elements(content)]
    return ",".join(filter(None, pieces))


def _repair_piece(text: str, repair: Repair) -> str:
    piece: Any = parse_json(text)
    if not isinstance(piece, dict):
        return ""
    repaired = repair(cast("Piece", piece))
    if repaired is None:
        return ""
    return text if repaired is piece else encode_json(repaired)


def repair_call(call: Piece, arguments: str, outbound: Callable[[str], str] | None = None) -> Piece:
    """Return a call with a name and arguments that providers take.

    Args:
        call: The call, with its `name`.
        arguments: The member that has the arguments.
        outbound: Makes a name that the provider takes.
    """
    name = call.get("name")
    given = name if isinstance(name, str) else ""
    fitting = (outbound or _fit)(given)
    value = call.get(arguments)
    if fitting == name and isinstance(value, dict):
        return call
    if not isinstance(value, dict):
        value = parse_json(as_object(value))
    return {**call, "name": fitting, arguments: value}


def as_object(value: Any) -> str:
    """Return arguments of any kind as the text of a JSON object; none are an empty one."""
    if value is None or value == "":
        return "{}"
    return arguments_as_object(value if isinstance(value, str) else encode_json(value))


def is_blank(value: Any) -> bool:
    """Return whether a text is missing, or nothing but blanks."""
    return not isinstance(value, str) or not value.strip()


def _fit(name: str) -> str:
    return fit_name(name) or "unnamed"
