r"""Calls between special tokens in sections: DeepSeek V2 to V3.1 and R1, Kimi K2 and K3, Step 3.

DeepSeek V3 and R1:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{…}\n```
    <｜tool▁call▁end｜>…

DeepSeek V3.1:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

Kimi K2:

    <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}
    <|tool_call_end|>…

Kimi K3:

    <|open|>call tool="f" index="1"<|sep|><|open|>argument key="k" type="string"<|sep|>v
    <|close|>argument<|sep|>…

DeepSeek's bars are U+FF5C and its blanks U+2581; tokenisers and gateways also leave ASCII bars,
blanks and (escaped) underscores. Sources: the models' chat templates; Kimi K3's "XTML" as vLLM
documents it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.core.calls import ToolCall

from . import lenient_json, parameter_tags
from .dialect import BodyEnding, CallForm, FoundCall, ParsedBody, mark_unreadable
from .offered_tools import OfferedTools
from .parameter_tags import PREFIX, read_calls, read_markup

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
BETWEEN_CALLS = (
    rf"{_END}\s*(?:(?:{_SECTION_END})\s*(?:{_SECTION})\s*)?{_BEGIN}\s*\w*\s*(?:{_SEP.pattern})"
)
"""Matches what stands between two calls of a section."""
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n?")
_AFTER = re.compile(rf"\s*(?:```)?\s*(?:{_END})?")
_FUNCTION_NAME = re.compile(r"\s*([^\s`{]+)")
_NUMBER = re.compile(r":\d+$")
_INVOKES = re.compile(rf"""\s*<{PREFIX}invoke\s+name=\s*["']?([^"'<>\n]+)""")
_NAME = re.compile(r"[\w.:/-]{1,128}")
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_MOST_ENDS = 16
"""Closing marks that are tried for one call in mark-up."""


def _read(opener: str, body: str, ending: BodyEnding, tools: OfferedTools) -> ParsedBody | None:
    shift = len(opener) if re.fullmatch(_BEGIN, opener) else 0
    if shift:
        body = opener + body
    parsed = ParsedBody()
    at = 0
    while begin := _BEGINS.match(body, at):
        separator = _SEP.search(body, begin.end())
        step = _read_call(body, begin, separator, ending, tools) if separator else None
        if separator is None or step is None:
            return _leave_out_nameless(parsed, body, at, ending)
        call, at = step
        parsed.items.append(call)
        # An invocation that could not be read, or a mark in the middle of a string: where its
        # values end is not known, and what follows may stand in one of them.
        parsed.doubtful = (
            parsed.doubtful
            or bool(_INVOKES.match(body, separator.end()) and not call.source)
            or (not call.cut and _ends_in_a_string(call.arguments))
        )
    rest = body[at:]
    if ending is BodyEnding.OPEN:
        parsed.rest = max(0, at - shift)
    elif rest.strip():
        if ending is BodyEnding.CLOSED and not parsed.items:
            return None
        parsed.items.append(rest)
    return parsed if parsed.items else None


def _ends_in_a_string(text: str) -> bool:
    """Return whether a string that begins in the text does not end in it."""
    unescaped = _ESCAPE.sub("", text)
    return unescaped.count('"') % 2 == 1 or unescaped.endswith("\\")


def _leave_out_nameless(
    parsed: ParsedBody, body: str, at: int, ending: BodyEnding
) -> ParsedBody | None:
    if ending is BodyEnding.CLOSED or not parsed.items:
        return None
    # This is the beginning of a call and does not just mention one: a person sees neither its mark
    # nor what came after it.
    parsed.problems.append(f"a call without a name was left out of the text: {body[at:].strip()}")
    parsed.doubtful = parsed.doubtful or any(call.source for call in parsed.calls)
    return parsed


def _read_call(
    body: str,
    begin: re.Match[str],
    separator: re.Match[str],
    ending: BodyEnding,
    tools: OfferedTools,
) -> tuple[FoundCall, int] | None:
    """Read the call that begins with a mark and whose arguments follow the separator."""
    name = body[begin.end() : separator.start()].strip()
    start = separator.end()
    if name == "function" and not body[start:].lstrip().startswith("<"):
        line = _FUNCTION_NAME.match(body, start)
        if line is None:
            return None
        name = line.group(1)
        start = line.end()
    name = _NUMBER.sub("", name).removeprefix("functions.")
    fence = _FENCE.match(body, start)
    start = fence.end() if fence else start
    if _INVOKES.match(body, start):
        closes = begin.group().strip().replace("begin", "end")
        return _read_invocation(body, start, closes, ending, tools)
    if _NAME.fullmatch(name) is None:
        return None
    value = lenient_json.decode_leniently_at(body, start)
    after = _AFTER.match(body, value[1]) if value is not None else None
    if value is not None and after is not None:
        decoded, end_of_value, repairs = value
        arguments = body[start:end_of_value]
        if isinstance(decoded, (dict, str)):
            arguments = lenient_json.encode_arguments(decoded)
        return FoundCall(name, arguments, tuple(repairs)), after.end()
    return _read_broken(name, body, start, ending)


def _read_broken(
    name: str, body: str, start: int, ending: BodyEnding
) -> tuple[FoundCall, int] | None:
    """Read a call whose arguments are no JSON."""
    end = _ENDS.search(body, start)
    if end is not None and not body[start : end.start()].strip(" \r\n`"):
        return FoundCall(name, "{}"), end.end()
    if ending is BodyEnding.CLOSED:
        return None
    if end is None:
        text = body[start:].strip()
        return (FoundCall(name, text, cut=ending is BodyEnding.OPEN), len(body)) if text else None
    text = body[start : end.start()].strip().removesuffix("```").strip()
    return FoundCall(name, text or "{}"), end.end()


def _read_invocation(
    body: str, start: int, closes: str, ending: BodyEnding, tools: OfferedTools
) -> tuple[FoundCall, int] | None:
    """Read the invocation that Step 3 puts where others put JSON.

    `closes` is the token that ends the call, in the spelling of the one that began it.
    """
    stop = body.find(closes, start)
    for _ in range(_MOST_ENDS):
        if stop < 0:
            break
        source = body[start:stop]
        after = stop + len(closes)
        parsed = read_markup(source, BodyEnding.CLOSED, tools)
        if parsed is not None and len(parsed.items) == 1 and parsed.calls:
            if closes in source:
                # A value that holds the end of a call may hold a part of another one, too. Without
                # a source the reply is in doubt (`_read`).
                return FoundCall(parsed.calls[0].tool, mark_unreadable(source)), after
            return parsed.calls[0], after
        stop = body.find(closes, after)
    if ending is BodyEnding.CLOSED:
        return None
    begun = _INVOKES.match(body, start)
    tool = begun.group(1) if begun else ""
    return FoundCall(
        tool, mark_unreadable(body[start:].strip()), cut=ending is BodyEnding.OPEN
    ), len(body)


def _closes(opener: str) -> str:
    return _END if re.fullmatch(_BEGIN, opener) else _SECTION_END


SECTION = CallForm("section", f"{_SECTION}|{_BEGIN}", _closes, _read)


# ---- Kimi K3


def _read_xtml(
    opener: str, body: str, ending: BodyEnding, tools: OfferedTools
) -> ParsedBody | None:
    return read_calls(body, parameter_tags.XTML, ending, tools)


XTML = CallForm(
    "xtml", r"<\|open\|>tools<\|sep\|>", lambda _: r"<\|close\|>tools<\|sep\|>", _read_xtml
)


# ---- writing


def render_deepseek(calls: Sequence[ToolCall]) -> str:
    """Write calls as DeepSeek V3 and R1 do."""
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.tool}\n"
        f"```json\n{call.arguments}\n```<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def render_deepseek31(calls: Sequence[ToolCall]) -> str:
    """Write calls as DeepSeek V3.1 does."""
    inner = "".join(
        f"<｜tool▁call▁begin｜>{call.tool}<｜tool▁sep｜>{call.arguments}<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def render_kimi(calls: Sequence[ToolCall]) -> str:
    """Write calls as Kimi K2 does. Their numbers count from 0 within the answer."""
    inner = "".join(
        f"<|tool_call_begin|>functions.{call.tool}:{index}<|tool_call_argument_begin|>"
        f"{call.arguments}<|tool_call_end|>"
        for index, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"
