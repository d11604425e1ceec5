"""Calls between special tokens in sections: DeepSeek V2 to V3.1 and R1, Kimi K2, Step 3.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\\n```json\\n{…}\\n```<｜tool▁call▁end｜>…   V3, R1
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>          V3.1
    <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>…
    <|open|>call tool="f" index="1"<|sep|><|open|>argument key="k" type="string"<|sep|>v<|close|>argument<|sep|>…

DeepSeek's bars are U+FF5C and its blanks U+2581; tokenisers and gateways also leave ASCII bars, blanks and
(escaped) underscores. Sources: the models' chat templates; Kimi K3's "XTML" as vLLM documents it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import Call

from . import jsonish
from .form import Ending, Form, Found, Parsed, Tools
from .markup import read_markup

_BAR = "[|｜]"
_GAP = r"(?:[▁_ ]|\\_)"


def _token(*words: str) -> str:
    return f"<{_BAR}{_GAP.join(words)}{_BAR}>"


_SECTION = f"{_token('tool', 'calls', 'begin')}|{_token('tool', 'calls', 'section', 'begin')}"
_SECTION_END = f"{_token('tool', 'calls', 'end')}|{_token('tool', 'calls', 'section', 'end')}"
_BEGIN = _token("tool", "call", "begin")
_END = _token("tool", "call", "end")
_SEP = re.compile(rf"{_token('tool', 'sep')}|{_token('tool', 'call', 'argument', 'begin')}")
_BEGINS = re.compile(rf"\s*{_BEGIN}")
_ENDS = re.compile(_END)
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n?")
_AFTER = re.compile(rf"\s*(?:```)?\s*(?:{_END})?")
_NUMBER = re.compile(r":\d+$")


def _read(opener: str, body: str, ending: Ending, tools: Tools) -> Parsed | None:
    shift = len(opener) if re.fullmatch(_BEGIN, opener) else 0
    body = opener + body if shift else body
    parsed = Parsed()
    at = 0
    while begin := _BEGINS.match(body, at):
        separator = _SEP.search(body, begin.end())
        if separator is None:
            return _nothing(parsed, body, at, ending)
        step = _one(body, begin.end(), separator, ending, tools)
        if step is None:
            return None
        call, at = step
        parsed.items.append(call)
    rest = body[at:]
    if ending is Ending.OPEN:
        parsed.rest = max(0, at - shift)
    elif rest.strip():
        if ending is Ending.CLOSED and not parsed.items:
            return None
        parsed.items.append(rest)
    return parsed if parsed.items else None


def _nothing(parsed: Parsed, body: str, at: int, ending: Ending) -> Parsed | None:
    if ending is Ending.CLOSED or not parsed.items:
        return None
    parsed.problems.append("a call was cut off before its name was known")
    parsed.items.append(body[at:])
    return parsed


def _one(
    body: str, at: int, separator: re.Match[str], ending: Ending, tools: Tools
) -> tuple[Found, int] | None:
    """The call whose header starts at `at` and whose arguments follow the separator."""
    name, start = body[at : separator.start()].strip(), separator.end()
    if name == "function" and not body[start:].lstrip().startswith("<"):
        line = re.compile(r"\s*([^\s`{]+)").match(body, start)
        if line is None:
            return None
        name, start = line.group(1), line.end()
    name = _NUMBER.sub("", name).removeprefix("functions.")
    fence = _FENCE.match(body, start)
    start = fence.end() if fence else start
    if body[start:].lstrip().startswith("<") and (marked := _marked(body, start, tools)):
        return marked
    value = jsonish.value_at(body, start)
    if value is not None and _AFTER.match(body, value[1]):
        after = _AFTER.match(body, value[1])
        whole = isinstance(value[0], (dict, str))
        shown = jsonish.arguments(value[0]) if whole else body[start : value[1]]
        return Found(name, shown, tuple(value[2])), after.end() if after else value[1]
    end = _ENDS.search(body, start)
    if end is not None and not body[start : end.start()].strip(" \r\n`"):
        return Found(name, "{}"), end.end()
    if ending is Ending.CLOSED:
        return None
    if end is None:
        text = body[start:].strip()
        return (Found(name, text, cut=ending is Ending.OPEN), len(body)) if text else None
    text = body[start : end.start()].strip().removesuffix("```").strip()
    return Found(name, text or "{}"), end.end()


def _marked(body: str, start: int, tools: Tools) -> tuple[Found, int] | None:
    """Step 3 puts an invocation where others put JSON."""
    end = _ENDS.search(body, start)
    stop = end.start() if end else len(body)
    parsed = read_markup(body[start:stop], Ending.CLOSED, tools)
    if parsed is None or len(parsed.calls) != 1:
        return None
    return parsed.calls[0], end.end() if end else stop


def _closes(opener: str) -> str:
    return _END if re.fullmatch(_BEGIN, opener) else _SECTION_END


SECTION = Form("section", f"{_SECTION}|{_BEGIN}", _closes, _read)


# ---- Kimi K3

_CALL = re.compile(r"<\|open\|>call((?:\s+\w+=\"[^\"]*\")*)\s*<\|sep\|>")
_ARGUMENT = re.compile(r"\s*<\|open\|>argument((?:\s+\w+=\"[^\"]*\")*)\s*<\|sep\|>")
_ARGUMENT_END = re.compile(r"<\|close\|>argument<\|sep\|>(?=\s*(?:<\|open\|>argument|<\|close\|>call))")
_CALL_END = re.compile(r"\s*<\|close\|>call<\|sep\|>")


def _attribute(text: str, name: str) -> str:
    match = re.search(rf'\b{name}="([^"]*)"', text)
    return match.group(1).replace("&quot;", '"').replace("&amp;", "&") if match else ""


def _read_xtml(opener: str, body: str, ending: Ending, tools: Tools) -> Parsed | None:
    parsed = Parsed()
    at = 0
    while call := _CALL.search(body, at):
        tool, at = _attribute(call.group(1), "tool"), call.end()
        values: dict[str, Any] = {}
        while argument := _ARGUMENT.match(body, at):
            end = _ARGUMENT_END.search(body, argument.end())
            if end is None:
                break
            raw = body[argument.end() : end.start()]
            decoded = None if _attribute(argument.group(1), "type") == "string" else jsonish.decode(raw)
            values[_attribute(argument.group(1), "key")] = decoded[0] if decoded else raw
            at = end.end()
        closed = _CALL_END.match(body, at)
        if closed is None:
            text = body[call.end() :].strip()
            if ending is Ending.CLOSED or not text:
                return None
            parsed.items.append(Found(tool, text, cut=ending is Ending.OPEN))
            return parsed
        parsed.items.append(Found(tool, jsonish.encode(values)))
        at = closed.end()
    if ending is Ending.OPEN and parsed.items:
        parsed.rest = at
    return parsed if parsed.items else None


XTML = Form("xtml", r"<\|open\|>tools<\|sep\|>", lambda _: r"<\|close\|>tools<\|sep\|>", _read_xtml)

FORMS = (SECTION, XTML)


# ---- writing


def render_deepseek(calls: Sequence[Call]) -> str:
    """DeepSeek V3 and R1."""
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.tool}\n```json\n{call.arguments}\n```<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def render_deepseek31(calls: Sequence[Call]) -> str:
    """DeepSeek V3.1."""
    inner = "".join(
        f"<｜tool▁call▁begin｜>{call.tool}<｜tool▁sep｜>{call.arguments}<｜tool▁call▁end｜>" for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def render_kimi(calls: Sequence[Call]) -> str:
    """Kimi K2. Numbers count from 0 within the answer."""
    inner = "".join(
        f"<|tool_call_begin|>functions.{call.tool}:{index}<|tool_call_argument_begin|>"
        f"{call.arguments}<|tool_call_end|>"
        for index, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def render_xtml(calls: Sequence[Call]) -> str:
    """Kimi K3."""
    return (
        "<|open|>tools<|sep|>"
        + "".join(_xtml(call, index + 1) for index, call in enumerate(calls))
        + "<|close|>tools<|sep|>"
    )


def _xtml(call: Call, index: int) -> str:
    decoded = jsonish.strict(call.arguments)
    values = (jsonish.as_object(decoded[0]) if decoded else None) or {}
    inner = "".join(_xtml_argument(key, value) for key, value in values.items())
    return f'<|open|>call tool="{call.tool}" index="{index}"<|sep|>{inner}<|close|>call<|sep|>'


def _xtml_argument(key: str, value: Any) -> str:
    raw = isinstance(value, str) and "<|" not in value
    kind = "string" if raw else "json"
    shown = value if raw else jsonish.encode(value).replace("<", "\\u003c")
    name = key.replace("&", "&amp;").replace('"', "&quot;")
    return f'<|open|>argument key="{name}" type="{kind}"<|sep|>{shown}<|close|>argument<|sep|>'
