"""Gemma's own notation: FunctionGemma and Gemma 4.

    <start_function_call>call:f{city:<escape>Paris<escape>,days:3}<end_function_call>
    <|tool_call>call:f{city:<|"|>Paris<|"|>,days:3}<tool_call|>

Keys are bare (or quoted), text stands between two quote tokens, the rest is JSON. Gemma 3 answers
with fenced `tool_code` instead (see `fences`). Source: the chat templates of these models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import Call

from . import lenient_json
from .dialect import Ending, Form, Found, Parsed, Tools, unreadable

_HEAD = re.compile(r"[\s,;]*(?:call:)+\s*([A-Za-z_][\w./-]*)(?::\1)?\s*(?=[{(])")
QUOTE = r'<\|"\|>|<escape>|<\|\'\|>'
"""What opens or closes a text; see `markup.VALUE_MARK`."""
_QUOTE = re.compile(QUOTE)
_BARE = re.compile(r"[^\s,{}\[\]()\"'<][^,{}\[\]()\n<]*")
_KEY = re.compile(r"\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s:=,{}\[\]()\"<][^:=,{}\[\]()\"<]*?))\s*[:=]")
_SPACE = re.compile(r"\s*")
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "True": True,
    "False": False,
    "None": None,
}
_DEEPEST = 64


class _Broken(ValueError):
    """Not the notation, or not whole."""


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, depth: int = 0) -> tuple[Any, int]:
    at = _skip(text, at)
    quote = _QUOTE.match(text, at)
    if quote:
        end = text.find(quote.group(), quote.end())
        if end < 0:
            raise _Broken
        return text[quote.end() : end], end + len(quote.group())
    if text[at : at + 1] in ("{", "(") and depth < _DEEPEST:
        return _object(text, at, depth + 1)
    if text[at : at + 1] == "[" and depth < _DEEPEST:
        return _list(text, at, depth + 1)
    if text[at : at + 1] == "'":
        return _single(text, at)
    found = lenient_json.strict(text, at)
    if found is not None:
        return found
    bare = _BARE.match(text, at)
    if bare is None:
        raise _Broken
    word = bare.group().strip()
    return _WORDS.get(word, word), bare.end()


def _single(text: str, at: int) -> tuple[str, int]:
    match = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(text, at)
    decoded = lenient_json.decode(match.group()) if match else None
    if match is None or decoded is None:
        raise _Broken
    return decoded[0], match.end()


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    close = "}" if text[at] == "{" else ")"
    values: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] != close:
        quoted = _QUOTE.match(text, at)
        key, at = _value(text, at) if quoted else _key(text, at)
        if quoted:
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise _Broken
            at += 1
        if key in values:
            # Text has no escapes: a name that comes twice stands within a text that ended too
            # early.
            raise _Broken
        values[key], at = _value(text, at, depth)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != close:
            raise _Broken
    return values, at + 1


def _key(text: str, at: int) -> tuple[str, int]:
    match = _KEY.match(text, at)
    if match is None:
        raise _Broken
    if match.group(2) is not None:
        return match.group(2).strip(), match.end()
    decoded = lenient_json.strict(f'"{match.group(1)}"')
    if decoded is None:
        raise _Broken
    return decoded[0], match.end()


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _value(text, at, depth)
        values.append(value)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _Broken
    return values, at + 1


def _read(opener: str, body: str, ending: Ending, tools: Tools) -> Parsed | None:
    parsed = Parsed()
    at = 0
    while head := _HEAD.match(body, at):
        try:
            values, end = _object(body, head.end(), 0)
        except _Broken:
            if ending is Ending.CLOSED:
                return None
            text = unreadable(body[head.end() :].strip())
            parsed.items.append(Found(head.group(1), text, cut=ending is Ending.OPEN))
            parsed.doubtful = ending is Ending.FORCED
            return parsed
        source = body[head.start() : end]
        alone = not tools.admit(head.group(1), values)
        parsed.items.append(
            Found(head.group(1), lenient_json.encode(values), source=source, alone=alone)
        )
        at = end
    if not parsed.items:
        return None
    if ending is Ending.OPEN:
        parsed.rest = at
    elif body[at:].strip():
        parsed.items.append(body[at:])
    return parsed


TAIL = r"[})]\s{0,8}(?:<tool_call\|>|<end_function_call>|\Z)"
"""How a call ends; see `markup.TAIL`."""

BETWEEN = r"<tool_call\|>\s*<\|tool_call>|<end_function_call>\s*<start_function_call>"
"""What stands between two calls."""

FUNCTION_GEMMA = Form(
    "functiongemma", r"<start_function_call>", lambda _: r"<end_function_call>", _read
)
GEMMA4 = Form("gemma4", r"<\|tool_call>", lambda _: r"<tool_call\|>", _read)

FORMS = (FUNCTION_GEMMA, GEMMA4)


def _shown(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}" if quote not in value else _escaped(value)
    if (members := lenient_json.as_object(value)) is not None:
        return "{" + ",".join(f"{_name(k)}:{_shown(v, quote)}" for k, v in members.items()) + "}"
    if (elements := lenient_json.as_list(value)) is not None:
        return "[" + ",".join(_shown(v, quote) for v in elements) + "]"
    return lenient_json.encode(value)


def _escaped(value: str) -> str:
    return lenient_json.encode(value).replace("<", "\\u003c")


def _name(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_]\w*", key) else _escaped(key)


def _write(call: Call, opens: str, closes: str, quote: str) -> str:
    decoded = lenient_json.strict(call.arguments)
    values = (lenient_json.as_object(decoded[0]) if decoded else None) or {}
    return f"{opens}call:{call.tool}{_shown(values, quote)}{closes}"


def render_gemma4(calls: Sequence[Call]) -> str:
    """Gemma 4."""
    return "".join(_write(call, "<|tool_call>", "<tool_call|>", '<|"|>') for call in calls)


def render_function_gemma(calls: Sequence[Call]) -> str:
    """FunctionGemma."""
    return "".join(
        _write(call, "<start_function_call>", "<end_function_call>", "<escape>") for call in calls
    )
