"""The text that a model continues which was taught to write the arguments of calls.

An adapter that `client` loads with the model (`known_models`) was trained on this form, and
on no other. It goes on after `Call:`, with `none` or with what is to be called:

    Tools:
    get_weather: The weather of a city now.
    - city (text): Name of the city, e.g. 'Oslo'
    - unit (text, optional) One of "metric", "imperial".

    Request: How warm is it in Lima?
    Call: get_weather {"city": "Lima"}

Several calls are a line each. `evals/training` writes its examples with this module: who changes
the form trains a new adapter. Whether anything is called, and which tool, is decided by others,
which do it better (`call_finding`): the model goes on behind the tool's name.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ferrule.core.calls import encode_json

from .slots import first_alternative, read_schema

NO_CALL = "none"

END = "<|im_end|>"
"""The token that ends a text: llguidance allows another end-of-text token than the model writes."""

_MAX_DESCRIPTION = 500
_MAX_ABOUT = 300
_MAX_INNER_ABOUT = 120
_SHORT_ABOUT = 60
_MAX_TOOL = 3000
_MAX_CHOICES = 30
_MAX_INNER = 12
"""Characters of a tool's and a parameter's description, and of one inside; of a parameter's where
the whole would be longer than the window bears; choices; fields."""

_KEPT_KEYWORDS = ("type", "enum", "const", "items", "minimum", "maximum")
"""What the grammar of a value takes from its schema; the rest is checked by the dispatcher.

Not `pattern`: llama.cpp goes on without a grammar where it cannot read one, and says so to whoever
sits at the terminal.
"""

_JSON_FORM = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,
}
"""How llguidance lets JSON be written: as the examples of the training are."""


class CallableTool:
    """A tool as the model is shown it, and as its calls may be written."""

    def __init__(self, name: str, description: str, schema: Mapping[str, Any]) -> None:
        self.name = name
        self.schema = _simplify(schema)
        about = _one_line(description, _MAX_DESCRIPTION)
        head = f"{name}: {about}" if about else name
        for most in (_MAX_ABOUT, _SHORT_ABOUT, 0):
            self.text = "\n".join([head, *_describe_properties(self.schema, "", most)])
            if len(self.text) <= _MAX_TOOL:
                break


def render_prompt(tools: Sequence[CallableTool], request: str) -> str:
    """Return the prompt for a request, up to where the calls begin."""
    listed = "\n\n".join(tool.text for tool in tools)
    return f"Tools:\n{listed}\n\nRequest: {request.strip()}\nCall:"


def render_calls(
    tools: Sequence[CallableTool], calls: Sequence[tuple[str, Mapping[str, Any]]]
) -> str:
    """Return how calls are written behind a prompt: what the model was trained to write."""
    if not calls:
        return f" {NO_CALL}"
    schemas = {tool.name: tool.schema for tool in tools}
    return "\nCall:".join(
        f" {name} {json.dumps(_in_order(arguments, schemas[name]), ensure_ascii=False)}"
        for name, arguments in calls
    )


def render_member(schema: Mapping[str, Any], name: str, value: Any) -> str:
    """Return how one member of an object is written among the others."""
    return f"{_encode(name)}: {_encode(_in_order(value, schema['properties'][name]))}"


def build_text_grammar(text: str) -> str:
    """Return the grammar of one text, in llguidance's form of Lark."""
    return f"%llguidance {{}}\nstart: {json.dumps(text)} {END}"


def build_arguments_grammar(tool: CallableTool) -> str:
    """Return the grammar of a tool's arguments behind its name, in llguidance's form of Lark.

    Source: llguidance's `docs/syntax.md` (`%json`, and `x-guidance` for how JSON is spelled).
    """
    schema = encode_json({**tool.schema, "x-guidance": _JSON_FORM})
    return f'%llguidance {{}}\nstart: " " arguments {END}\narguments: %json {schema}'


def _describe_properties(schema: Mapping[str, Any], indent: str, most: int) -> list[str]:
    """Return a line for each property of an object, and for those of objects in it."""
    lines: list[str] = []
    required = cast("Sequence[str]", schema.get("required", ()))
    for name, part in cast("dict[str, Any]", schema["properties"]).items():
        kind = _name_kind(part) + ("" if name in required else ", optional")
        about = _one_line(part.get("description"), most)
        line = f"{indent}- {name} ({kind})" + (f": {about}" if about else "")
        choices = part.get("enum") or part.get("items", {}).get("enum")
        if choices:
            listed = ", ".join(map(_encode, choices[:_MAX_CHOICES]))
            line += f" One of {listed}."
        if part.get("default") is not None and "efault" not in about:
            line += f" Default {_encode(part['default'])}."
        lines.append(line)
        inner = part if part.get("properties") else part.get("items", {})
        if inner.get("properties"):
            lines += _describe_properties(inner, indent + "  ", min(most, _MAX_INNER_ABOUT))[
                :_MAX_INNER
            ]
    return lines


def _name_kind(part: Mapping[str, Any]) -> str:
    kind = str(part.get("type", "any"))
    if kind == "array":
        items = part.get("items")
        return f"list of {_name_kind(items) if items else 'any'}"
    return "text" if kind == "string" else kind


def _one_line(text: Any, most: int) -> str:
    line = " ".join(str(text or "").split())
    return line if len(line) <= most else line[:most].rsplit(" ", 1)[0] + " ..."


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _simplify(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema with what the model is shown, required properties first."""
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    listed = cast("Sequence[str]", schema.get("required") or ())
    required = [name for name in properties if name in listed]
    names = [*required, *(name for name in properties if name not in listed)]
    return {
        "type": "object",
        "properties": {name: _simplify_value(properties[name]) for name in names},
        "required": required,
        "additionalProperties": False,
    }


def _simplify_value(value_schema: Any) -> dict[str, Any]:
    """Return a value's schema; of several alternatives the first that is not null."""
    schema = read_schema(value_schema)
    part = first_alternative(schema)
    kept: dict[str, Any] = {key: part[key] for key in _KEPT_KEYWORDS if key in part}
    kind = cast("Any", kept.get("type"))
    if isinstance(kind, list):
        kept["type"] = next((one for one in cast("list[Any]", kind) if one != "null"), "string")
    if part.get("properties"):
        kept |= _simplify(part)
    if isinstance(part.get("items"), Mapping):
        kept["items"] = _simplify_value(part["items"])
    else:
        kept.pop("items", None)
    _drop_impossible_choices(kept)
    for key in ("description", "default"):
        value = schema.get(key, part.get(key))
        if value is not None:
            kept[key] = value
    return kept


def _drop_impossible_choices(kept: dict[str, Any]) -> None:
    """Leave out choices of which a value of its type can be none: no text has such a grammar.

    Beside `"type": "array"` those of the items are meant.
    """
    choices = cast("Sequence[Any]", kept.get("enum") or ())
    if "type" not in kept or not choices:
        return
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for({"type": kept["type"]})
    except (ValueError, jsonschema_rs.ValidationError):
        return  # The dispatcher says what is the matter with the schema.
    if any(map(validator.is_valid, choices)):
        return
    del kept["enum"]
    if kept["type"] == "array":
        kept["items"] = {**kept.get("items", {}), "enum": list(choices)}
        _drop_impossible_choices(kept["items"])


def _in_order(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value with its members in the order of the schema."""
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    if isinstance(value, Mapping) and properties:
        given = cast("Mapping[str, Any]", value)
        names = [*(n for n in properties if n in given), *(n for n in given if n not in properties)]
        return {name: _in_order(given[name], properties.get(name, {})) for name in names}
    items = schema.get("items")
    if isinstance(value, list) and items:
        return [_in_order(one, items) for one in cast("list[Any]", value)]
    return cast("Any", value)
