"""JSON that is a call: the shapes that families of models use for name and arguments.

    {"name": …, "arguments": …}                       Hermes, Qwen, Mistral, Granite, Phi
    {"name": …, "parameters": …}                      Llama, InternLM
    {"tool_name": …, "parameters": …}                 Cohere
    {"tool": …, "args" | "tool_input": …}             many prompts
    {"action": …, "action_input": …}                  ReAct prompts
    {"type": "function", "function": {…}}             OpenAI
    {"function_call": {…}}, {"tool_calls": [{…}, …]}  OpenAI

Arguments may be an object or a string that holds one. Read loosely, inside marks that say "this is
a call"; read narrowly elsewhere, where a value with a name is more often data than a call.
"""

from __future__ import annotations

import re
from typing import Any

from . import lenient_json
from .dialect import Ending, Found, Parsed, Tools

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


def calls_of(value: Any, *, narrow: bool, tools: Tools | None = None) -> list[Found] | None:
    """The calls that a JSON value is, or None if it is something else.

    Narrowly: nothing but a name and arguments may be there, and the name (if `tools` are given)
    must be one of theirs or nearly.
    """
    members = lenient_json.as_list(value)
    if members is None:
        shape = lenient_json.as_object(value)
        if shape is None:
            return None
        members = _listed(shape)
        if members is None:
            call = _call_of(shape, narrow=narrow)
            members_found = [call] if call else None
            return _known(members_found, tools)
    found: list[Found] = []
    for member in members:
        inner = lenient_json.as_object(member)
        call = _call_of(inner, narrow=narrow) if inner is not None else None
        if call is None:
            return None
        found.append(call)
    return _known(found or None, tools)


def _known(found: list[Found] | None, tools: Tools | None) -> list[Found] | None:
    if found and tools and not all(tools.near(call.tool) for call in found):
        return None
    return found


def _listed(shape: dict[str, Any]) -> list[Any] | None:
    for key in _LISTS:
        if isinstance(shape.get(key), list):
            return lenient_json.as_list(shape[key])
    return None


def _call_of(shape: dict[str, Any], *, narrow: bool) -> Found | None:
    for key in _INNER:
        inner = lenient_json.as_object(shape.get(key))
        if inner is not None and not (narrow and set(shape) - _EXTRA - {key}):
            return _call_of(inner, narrow=narrow)
    name_key = next((k for k in _NAMES if isinstance(shape.get(k), str) and shape[k]), None)
    if name_key is None:
        return None
    name = str(shape[name_key]).strip()
    if not _NAME.fullmatch(name):
        return None
    key = next((k for k in _ARGUMENTS if k in shape), None)
    if narrow:
        return _narrow(shape, name, name_key, key)
    if key is not None:
        return Found(name, lenient_json.arguments(shape[key]))
    beside = {k: v for k, v in shape.items() if k != name_key and k not in _EXTRA}
    return Found(
        name, lenient_json.arguments(beside), ("arguments stood beside the name",) if beside else ()
    )


def _narrow(shape: dict[str, Any], name: str, name_key: str, key: str | None) -> Found | None:
    if key is None or set(shape) - _EXTRA - {name_key, key}:
        return None
    value = shape[key]
    if isinstance(value, str):
        decoded = lenient_json.strict(value)
        if decoded is None or not isinstance(decoded[0], dict):
            return None
    elif not isinstance(value, dict):
        return None
    return Found(name, lenient_json.arguments(value))


def read_json(body: str, ending: Ending) -> Parsed | None:
    """JSON calls one after another, or lists of them, as they stand between marks."""
    parsed = Parsed()
    at = 0
    while True:
        glue = _GLUE.match(body, at)
        at = glue.end() if glue else at
        if at >= len(body) or body[at] not in "{[":
            return _finish(parsed, body, at, ending)
        value = lenient_json.value_at(body, at)
        if value is None:
            return None if ending is Ending.CLOSED else _broken(parsed, body, at, ending)
        calls = calls_of(value[0], narrow=False)
        if calls is None:
            if not parsed.items:
                return _nameless(body, at, ending)
            return _finish(parsed, body, at, ending)
        repairs = tuple(value[2])
        parsed.items += [Found(c.tool, c.arguments, c.repairs + repairs) for c in calls]
        at = value[1]


def _finish(parsed: Parsed, body: str, at: int, ending: Ending) -> Parsed | None:
    """What follows the last call: nothing, a bracket too many, or prose."""
    if not parsed.items:
        return None
    rest = body[at:]
    if ending is Ending.OPEN:
        parsed.rest = at
    elif rest and _TAIL.match(rest):
        parsed.problems.append("repaired: a closing bracket too many after a call")
    elif rest.strip():
        parsed.items.append(rest)
    return parsed


def _nameless(body: str, at: int, ending: Ending) -> Parsed | None:
    if ending is Ending.OPEN or body[at] == "[":
        return None
    return Parsed([body], ["a call without a name was left in the text"])


def _broken(parsed: Parsed, body: str, at: int, ending: Ending) -> Parsed | None:
    """A call that is not JSON. Its arguments stay as they are; only its missing last brackets are
    no loss.
    """
    lists = at
    while body[lists : lists + 1] in ("[", " ", "\n", "\r", "\t", ","):
        value = lenient_json.value_at(body, lists + 1) if body[lists] in "[," else None
        inner = calls_of(value[0], narrow=False) if value else None
        if value and inner:
            parsed.items += inner
            lists = value[1]
        else:
            lists += 1
    body = body[lists:]
    name = _FIRST_NAME.search(body)
    if name is None:
        if parsed.items or ending is Ending.FORCED:
            parsed.items.append(body)
            parsed.problems.append("a call that could not be read was left in the text")
            return parsed
        return None
    begin = _FIRST_ARGUMENTS.search(body)
    cut = ending is Ending.OPEN
    if begin is None:
        parsed.items.append(Found(name.group(1), body, cut=cut))
        return parsed
    value = lenient_json.strict(body, begin.end())
    whole = value is not None and isinstance(value[0], dict) and _TAIL.match(body, value[1])
    if value is not None and whole and not cut:
        parsed.items.append(
            Found(
                name.group(1),
                lenient_json.arguments(value[0]),
                ("the call's closing bracket was missing",),
            )
        )
    else:
        text = body[begin.end() :].strip()
        parsed.items.append(
            Found(name.group(1), body if not text or lenient_json.decode(text) else text, cut=cut)
        )
    return parsed


def cut_json(text: str, tools: Tools) -> list[Found] | None:
    """The calls of a reply (or fenced block) that ended inside its JSON, or None if it hardly is a
    call.

    With tools on offer the name must be one of theirs; without, name and arguments must both be
    there.
    """
    name = _FIRST_NAME.search(text)
    if name is None or not _FIRST_ARGUMENTS.search(text):
        return None
    if tools and not tools.near(name.group(1)):
        return None
    at = len(text) - len(text.lstrip())
    parsed = _broken(Parsed(), text, at, Ending.OPEN)
    return parsed.calls if parsed else None
