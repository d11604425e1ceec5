"""Read calls from JSON: the shapes that families of models use for name and arguments.

    {"name": …, "arguments": …}                       Hermes, Qwen, Mistral, Granite, Phi
    {"name": …, "parameters": …}                      Llama, InternLM
    {"tool_name": …, "parameters": …}                 Cohere
    {"tool": …, "args" | "tool_input": …}             many prompts
    {"action": …, "action_input": …}                  ReAct prompts
    {"type": "function", "function": {…}}             OpenAI
    {"function_call": {…}}, {"tool_calls": [{…}, …]}  OpenAI

Arguments may be an object or a string that holds one. Inside marks that say "this is a call" JSON
is read loosely. Elsewhere, where a value with a name is more often data than a call, it is read
narrowly.
"""

from __future__ import annotations

import re
from typing import Any

from . import lenient_json
from .dialect import BodyEnding, FoundCall, ParsedBody
from .offered_tools import OfferedTools

_NAMES = ("name", "tool_name", "tool", "function", "function_name", "action", "recipient_name")
_ARGUMENTS = (
    "arguments",
    "parameters",
    "args",
    "params",
    "input",
    "tool_input",
    "action_input",
    "tool_arguments",
    "tool_parameters",
    "function_arguments",
    "kwargs",
)
_INNER = ("function", "function_call", "tool_call")
_LISTS = ("tool_calls", "calls", "function_calls", "tool_uses")
_EXTRA = frozenset(
    ("type", "id", "index", "tool_call_id", "call_id", "thought", "thoughts", "reasoning")
)
_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,127}")
_FIRST_NAME = re.compile(
    r"""["'](?:name|tool_name|tool|function|function_name|action)["']\s*:\s*["']([^"'\\{}]+)["']"""
)
_FIRST_ARGUMENTS = re.compile(rf"""["'](?:{"|".join(_ARGUMENTS)})["']\s*:\s*""")
_GLUE = re.compile(r"(?:[\s,;]|<\|?(?:tool_calls?|function_calls?|TOOLCALL)\|?>)*")
_TAIL = re.compile(r"[\s,;}\])]*\Z")


def read_call_value(
    value: Any, *, narrow: bool, tools: OfferedTools | None = None
) -> list[FoundCall] | None:
    """Return the calls that a JSON value is, or None if it is something else.

    Args:
        value: The decoded value.
        narrow: Whether nothing but a name and arguments may be there.
        tools: The tools on offer. If given, names must be theirs, or nearly.
    """
    members = _members(value)
    if members is None:
        return None
    found: list[FoundCall] = []
    for member in members:
        shape = lenient_json.as_object(member)
        call = _read_call(shape, narrow=narrow) if shape is not None else None
        if call is None:
            return None
        found.append(call)
    if not found or (tools and not all(tools.has_similar(call.tool) for call in found)):
        return None
    return found


def _members(value: Any) -> list[Any] | None:
    """Return the values that may be calls: those of a list, of an object's list, or the object."""
    members = lenient_json.as_list(value)
    if members is not None:
        return members
    shape = lenient_json.as_object(value)
    if shape is None:
        return None
    for key in _LISTS:
        listed = lenient_json.as_list(shape.get(key))
        if listed is not None:
            return listed
    return [shape]


def _read_call(shape: dict[str, Any], *, narrow: bool) -> FoundCall | None:
    for key in _INNER:
        inner = lenient_json.as_object(shape.get(key))
        if inner is not None and not (narrow and set(shape) - _EXTRA - {key}):
            return _read_call(inner, narrow=narrow)
    name_key = next((k for k in _NAMES if isinstance(shape.get(k), str) and shape[k]), None)
    if name_key is None:
        return None
    name = str(shape[name_key]).strip()
    if not _NAME.fullmatch(name):
        return None
    arguments_key = next((k for k in _ARGUMENTS if k in shape), None)
    if narrow:
        return _read_narrowly(shape, name, name_key, arguments_key)
    if arguments_key is not None:
        return FoundCall(name, lenient_json.encode_arguments(shape[arguments_key]))
    beside = {k: v for k, v in shape.items() if k != name_key and k not in _EXTRA}
    repairs = ("arguments stood beside the name",) if beside else ()
    return FoundCall(name, lenient_json.encode_arguments(beside), repairs)


def _read_narrowly(
    shape: dict[str, Any], name: str, name_key: str, key: str | None
) -> FoundCall | None:
    """Return the call if nothing but its name and an object of arguments is there."""
    if key is None or set(shape) - _EXTRA - {name_key, key}:
        return None
    value = shape[key]
    if isinstance(value, str):
        decoded = lenient_json.decode_strictly(value)
        if decoded is None or not isinstance(decoded[0], dict):
            return None
    elif not isinstance(value, dict):
        return None
    return FoundCall(name, lenient_json.encode_arguments(value))


def read_json_calls(body: str, ending: BodyEnding) -> ParsedBody | None:
    """Read JSON calls one after another, or lists of them, as they stand between marks."""
    parsed = ParsedBody()
    at = 0
    while True:
        glue = _GLUE.match(body, at)
        at = glue.end() if glue else at
        if at >= len(body) or body[at] not in "{[":
            return _finish(parsed, body, at, ending)
        value = lenient_json.decode_leniently_at(body, at)
        if value is None:
            return None if ending is BodyEnding.CLOSED else _read_broken(parsed, body, at, ending)
        decoded, end, repairs = value
        calls = read_call_value(decoded, narrow=False)
        if calls is None:
            if not parsed.items:
                return _read_nameless(body, at, ending)
            return _finish(parsed, body, at, ending)
        parsed.items += [FoundCall(c.tool, c.arguments, c.repairs + tuple(repairs)) for c in calls]
        at = end


def _finish(parsed: ParsedBody, body: str, at: int, ending: BodyEnding) -> ParsedBody | None:
    """Take what follows the last call: nothing, a bracket too many, or prose."""
    if not parsed.items:
        return None
    rest = body[at:]
    if ending is BodyEnding.OPEN:
        parsed.rest = at
    elif rest and _TAIL.match(rest):
        parsed.problems.append("repaired: a closing bracket too many after a call")
    elif rest.strip():
        parsed.items.append(rest)
    return parsed


def _read_nameless(body: str, at: int, ending: BodyEnding) -> ParsedBody | None:
    if ending is BodyEnding.OPEN or body[at] == "[":
        return None
    return ParsedBody([body], ["a call without a name was left in the text"])


def _read_broken(parsed: ParsedBody, body: str, at: int, ending: BodyEnding) -> ParsedBody | None:
    """Read a call that is not JSON.

    Its arguments stay as they are. Where only its last brackets are missing, nothing is lost.
    """
    body = body[_take_whole_calls(parsed, body, at) :]
    name = _FIRST_NAME.search(body)
    if name is None:
        if parsed.items or ending is BodyEnding.FORCED:
            parsed.items.append(body)
            parsed.problems.append("a call that could not be read was left in the text")
            return parsed
        return None
    parsed.items.append(_broken_call(name.group(1), body, is_cut=ending is BodyEnding.OPEN))
    return parsed


def _take_whole_calls(parsed: ParsedBody, body: str, at: int) -> int:
    """Take the whole calls at the start of a broken list. Return where the broken one begins."""
    while body[at : at + 1] in ("[", " ", "\n", "\r", "\t", ","):
        value = lenient_json.decode_leniently_at(body, at + 1) if body[at] in "[," else None
        calls = read_call_value(value[0], narrow=False) if value else None
        if value and calls:
            parsed.items += calls
            at = value[1]
        else:
            at += 1
    return at


def _broken_call(name: str, body: str, *, is_cut: bool) -> FoundCall:
    begin = _FIRST_ARGUMENTS.search(body)
    if begin is None:
        return FoundCall(name, body, cut=is_cut)
    value = lenient_json.decode_strictly(body, begin.end())
    if value is not None and not is_cut:
        decoded, end = value
        if isinstance(decoded, dict) and _TAIL.match(body, end):
            repairs = ("the call's closing bracket was missing",)
            return FoundCall(name, lenient_json.encode_arguments(decoded), repairs)
    text = body[begin.end() :].strip()
    # Text that is JSON by itself could be taken for arguments: the whole body cannot.
    if not text or lenient_json.decode_leniently(text):
        text = body
    return FoundCall(name, text, cut=is_cut)


def read_cut_json(text: str, tools: OfferedTools) -> list[FoundCall] | None:
    """Return the calls of a reply (or fenced block) that ended inside its JSON.

    None if it hardly is a call: name and arguments must both be there, and with tools on offer the
    name must be one of theirs.
    """
    name = _FIRST_NAME.search(text)
    if name is None or not _FIRST_ARGUMENTS.search(text):
        return None
    if tools and not tools.has_similar(name.group(1)):
        return None
    at = len(text) - len(text.lstrip())
    parsed = _read_broken(ParsedBody(), text, at, BodyEnding.OPEN)
    return parsed.calls if parsed else None
