"""Gemma's own notation: FunctionGemma and Gemma 4.

    <start_function_call>call:f{city:<escape>Paris<escape>,days:3}<end_function_call>
    <|tool_call>call:f{city:<|"|>Paris<|"|>,days:3}<tool_call|>

Keys are bare or quoted, text stands between two quote tokens, and the rest is JSON. Gemma 3 answers
with fenced `tool_code` instead (see `fences`). Source: the chat templates of these models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import ToolCall

from . import lenient_json
from .dialect import BodyEnding, CallForm, FoundCall, ParsedBody, mark_unreadable
from .offered_tools import OfferedTools

_HEAD = re.compile(r"[\s,;]*(?:call:)+\s*([A-Za-z_][\w./-]*)(?::\1)?\s*(?=[{(])")
QUOTE = r'<\|"\|>|<escape>|<\|\'\|>'
"""Opens or closes a text; see `parameter_tags.VALUE_MARK`."""
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
_MAX_DEPTH = 64


class _Broken(ValueError):
    """Raised for text that is not in this notation, or not whole."""


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _read_value(text: str, at: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value at an offset, and the offset after it."""
    at = _skip_space(text, at)
    quote = _QUOTE.match(text, at)
    if quote:
        end = text.find(quote.group(), quote.end())
        if end < 0:
            raise _Broken
        return text[quote.end() : end], end + len(quote.group())
    if text[at : at + 1] in ("{", "(") and depth < _MAX_DEPTH:
        return _read_object(text, at, depth + 1)
    if text[at : at + 1] == "[" and depth < _MAX_DEPTH:
        return _read_list(text, at, depth + 1)
    if text[at : at + 1] == "'":
        return _read_single_quoted(text, at)
    found = lenient_json.decode_strictly(text, at)
    if found is not None:
        return found
    bare = _BARE.match(text, at)
    if bare is None:
        raise _Broken
    word = bare.group().strip()
    return _WORDS.get(word, word), bare.end()


def _read_single_quoted(text: str, at: int) -> tuple[str, int]:
    match = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(text, at)
    decoded = lenient_json.decode_leniently(match.group()) if match else None
    if match is None or decoded is None:
        raise _Broken
    return decoded[0], match.end()


def _read_object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    close = "}" if text[at] == "{" else ")"
    values: dict[str, Any] = {}
    at = _skip_space(text, at + 1)
    while text[at : at + 1] != close:
        if _QUOTE.match(text, at):
            key, at = _read_value(text, at)
            at = _skip_space(text, at)
            if text[at : at + 1] != ":":
                raise _Broken
            at += 1
        else:
            key, at = _read_key(text, at)
        if key in values:
            # Text has no escapes: a name that comes twice stands within a text that ended too
            # early.
            raise _Broken
        values[key], at = _read_value(text, at, depth)
        at = _skip_space(text, at)
        if text[at : at + 1] == ",":
            at = _skip_space(text, at + 1)
        elif text[at : at + 1] != close:
            raise _Broken
    return values, at + 1


def _read_key(text: str, at: int) -> tuple[str, int]:
    match = _KEY.match(text, at)
    if match is None:
        raise _Broken
    if match.group(2) is not None:
        return match.group(2).strip(), match.end()
    decoded = lenient_json.decode_strictly(f'"{match.group(1)}"')
    if decoded is None:
        raise _Broken
    return decoded[0], match.end()


def _read_list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _skip_space(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _read_value(text, at, depth)
        values.append(value)
        at = _skip_space(text, at)
        if text[at : at + 1] == ",":
            at = _skip_space(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _Broken
    return values, at + 1


def _read(opener: str, body: str, ending: BodyEnding, tools: OfferedTools) -> ParsedBody | None:
    parsed = ParsedBody()
    at = 0
    while head := _HEAD.match(body, at):
        try:
            values, end = _read_object(body, head.end(), 0)
        except _Broken:
            if ending is BodyEnding.CLOSED:
                return None
            text = mark_unreadable(body[head.end() :].strip())
            parsed.items.append(FoundCall(head.group(1), text, cut=ending is BodyEnding.OPEN))
            parsed.doubtful = ending is BodyEnding.FORCED
            return parsed
        source = body[head.start() : end]
        alone = not tools.accepts_values(head.group(1), values)
        parsed.items.append(
            FoundCall(head.group(1), lenient_json.encode(values), source=source, alone=alone)
        )
        at = end
    if not parsed.items:
        return None
    if ending is BodyEnding.OPEN:
        parsed.rest = at
    elif body[at:].strip():
        parsed.items.append(body[at:])
    return parsed


CALL_END = r"[})]\s{0,8}(?:<tool_call\|>|<end_function_call>|\Z)"
"""Matches the end of a call; see `parameter_tags.CALL_END`."""

BETWEEN_CALLS = r"<tool_call\|>\s*<\|tool_call>|<end_function_call>\s*<start_function_call>"
"""Matches what stands between two calls."""

FUNCTION_GEMMA = CallForm(
    "functiongemma", r"<start_function_call>", lambda _: r"<end_function_call>", _read
)
GEMMA4 = CallForm("gemma4", r"<\|tool_call>", lambda _: r"<tool_call\|>", _read)


def _render_value(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}" if quote not in value else _escape(value)
    members = lenient_json.as_object(value)
    if members is not None:
        written = (f"{_render_key(k)}:{_render_value(v, quote)}" for k, v in members.items())
        return "{" + ",".join(written) + "}"
    elements = lenient_json.as_list(value)
    if elements is not None:
        return "[" + ",".join(_render_value(element, quote) for element in elements) + "]"
    return lenient_json.encode(value)


def _escape(text: str) -> str:
    """Return a text as JSON in which no mark can stand."""
    return lenient_json.encode(text).replace("<", "\\u003c")


def _render_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_]\w*", key) else _escape(key)


def _render_call(call: ToolCall, opens: str, closes: str, quote: str) -> str:
    decoded = lenient_json.decode_strictly(call.arguments)
    values = (lenient_json.as_object(decoded[0]) if decoded else None) or {}
    return f"{opens}call:{call.tool}{_render_value(values, quote)}{closes}"


def render_gemma4(calls: Sequence[ToolCall]) -> str:
    """Write calls as Gemma 4 does."""
    return "".join(_render_call(call, "<|tool_call>", "<tool_call|>", '<|"|>') for call in calls)


def render_function_gemma(calls: Sequence[ToolCall]) -> str:
    """Write calls as FunctionGemma does."""
    return "".join(
        _render_call(call, "<start_function_call>", "<end_function_call>", "<escape>")
        for call in calls
    )
