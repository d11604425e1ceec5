"""Arguments that a model writes which was taught to, held against what the request says.

The model reads a request better than rules do, and makes things up: it garbles numbers, and fills
optional parameters that nobody spoke of. The rules (`argument_filling`) do neither, and miss what
is not said in the usual way. So both are asked, and `reconcile` says whose value is taken:

    optional, and one of both leaves it out    nothing
    a value that the request bears             the model's
    any other                                  that of the rules; the model's, if they have none

Whether the request bears a value: a number is one of those that it names, a text stands in it, in
the parameter's description, or consists of its words. A parameter whose description asks for a form
(`YYYY-MM-DD`, `City, State`, a code) bears anything, as do choices, lists and objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.tools.word_stems import content_stems

from .call_format import CallableTool, build_arguments_grammar, render_prompt
from .candidates import find_values
from .raw_model import ArgumentWriter
from .request import Request, cut_request
from .slots import Slot, read_slots

MAX_TOKENS = 300
"""Tokens of arguments; what is longer is cut off, and nothing of it is taken."""

_ASKS_FOR_FORM = re.compile(
    r"format|YYYY|MM|iso\b|code|abbrev|city,? ?(?:and )?state|in the form|expression|equation"
    r"|function|formula|'[^']+, [A-Z]",
    re.IGNORECASE,
)


async def write_arguments(
    model: ArgumentWriter, name: str, description: str, schema: Mapping[str, Any], text: str
) -> dict[str, Any]:
    """Return the arguments that the model writes for a request; none if they were cut off."""
    tool = CallableTool(name, description, schema)
    written = await model.write_arguments(
        f"{render_prompt([tool], cut_request(text))} {name}",
        grammar=build_arguments_grammar(tool),
        max_tokens=MAX_TOKENS,
    )
    try:
        value = parse_json(written)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def reconcile(
    written: Mapping[str, Any], ruled: Mapping[str, Any], schema: Mapping[str, Any], text: str
) -> dict[str, Any]:
    """Return the arguments, from what the model wrote and what the rules found."""
    given: dict[str, Any] = {}
    request = Request(text)
    for slot in read_slots(schema):
        name = slot.name
        if name not in written:
            if slot.required and name in ruled:
                given[name] = ruled[name]
        elif not slot.required and name not in ruled and slot.kind != "object":
            continue
        elif name in ruled and not _bears(request, slot, written[name]):
            given[name] = ruled[name]
        else:
            given[name] = written[name]
    return given


def _bears(request: Request, slot: Slot, value: Any) -> bool:
    if slot.kind in ("integer", "number"):
        numbers = [found.value for found in find_values(slot, request)]
        return not numbers or value in numbers
    if slot.kind != "string" or not isinstance(value, str):
        return True
    said = " ".join(value.casefold().split())
    if said in " ".join(request.text.casefold().split()) or said in slot.about.casefold():
        return True
    if _ASKS_FOR_FORM.search(slot.about):
        return True
    words = set(content_stems(value))
    return bool(words) and words <= set(request.stems)
