r"""Calls between a pair of tags. All of them are read alike: the body's shape says how.

    <tool_call>{"name": …, "arguments": {…}}</tool_call>         Hermes, Qwen, Granite 4, Jamba,
                                                                 EXAONE, SmolLM
    <tool_call>\n<function=f><parameter=k>…                      Qwen3-Coder, Nemotron 3 (also
                                                                 without the wrapper)
    <tool_call>f\n<arg_key>k</arg_key><arg_value>v</arg_value>   GLM 4.5 to 4.7
    <function_calls><invoke name="f">…                           Anthropic's old text form, DSML,
                                                                 MiniMax, Step
    <tool_calls>[{…}, {…}]</tool_calls>                          Hunyuan, Jamba, MiniMax M1
    <TOOLCALL>[{…}]</TOOLCALL>                                   Nemotron
    <|tool_call|>[{…}]                                           Granite 3, Phi-4
    functools[{…}]                                               Phi-4-mini
    <|tool_call_start|>[f(a=1)]<|tool_call_end|>                 LFM2
    <|python_tag|>…, <|python_start|>[f(a=1)]<|python_end|>      Llama 3, Llama 4
    <|START_ACTION|>[{"tool_name": …}]<|END_ACTION|>             Cohere
    <|action_start|><|plugin|>{…}<|action_end|>                  InternLM
    <|tools_prefix|>[{"f": {…}}]<|tools_suffix|>                 Apertus

Sources: the chat templates of these models.
"""

from __future__ import annotations

import re
from dataclasses import replace

from . import lenient_json
from .call_shapes import read_json_calls
from .dialect import BodyEnding, CallForm, FoundCall, ParsedBody, mark_unreadable
from .offered_tools import OfferedTools
from .parameter_tags import PREFIX, read_markup
from .pythonic import LOOKS_LIKE_CALL, read_pythonic

_TAGS = "tool_calls?|function_calls?|functioncall|calls|tool_call_list|tool_use"
_TOKEN_ENDS = r"<\|e(?:om|ot)_id\|>"
_INTERPRETERS = ("python", "ipython", "code_interpreter")


def read_body(opener: str, body: str, ending: BodyEnding, tools: OfferedTools) -> ParsedBody | None:
    """Read whatever stands between two tags: JSON, mark-up or Python."""
    text = body.lstrip()
    if text.startswith("`") and ending is not BodyEnding.OPEN:
        text = _strip_fence(text)
        body = text
    if text.startswith("{") or re.match(r"\[\s*[{\]]", text):
        return read_json_calls(body, ending)
    if LOOKS_LIKE_CALL.match(text):
        return read_pythonic(body, ending, tools)
    parsed = read_markup(body, ending, tools, padded=not opener.startswith("<seed:"))
    if parsed is None or parsed.doubtful or len(parsed.items) != 1 or not parsed.calls:
        return parsed
    only = parsed.calls[0]
    if not only.source and not only.cut:
        # A name alone, or above JSON: it may stand among calls whose values are raw text.
        parsed.items = [replace(only, source=opener + body, escaped=True)]
    return parsed


def _strip_fence(text: str) -> str:
    """Return a body without the fence that a model put around it."""
    match = re.match(r"```\w*\s*(.*?)\s*(?:```\s*)?\Z", text, re.DOTALL)
    return match.group(1) if match else text


def _read_marked_opener(
    opener: str, body: str, ending: BodyEnding, tools: OfferedTools
) -> ParsedBody | None:
    """Read a call whose opener is part of it, such as `<function=f>`."""
    if opener.endswith("/>"):
        parsed = read_markup(opener, ending, tools)
        return parsed if parsed is None else ParsedBody(parsed.items, rest=0)
    if ending is not BodyEnding.OPEN:
        closes = re.match(rf"<({PREFIX})(function|invoke)", opener)
        body += f"</{closes.group(1)}{closes.group(2)}>" if closes else ""
        return read_markup(opener + body, ending, tools)
    parsed = read_markup(opener + body, ending, tools)
    if parsed is not None and parsed.rest is not None:
        parsed.rest -= len(opener)
    return parsed


def _read_python_tag(
    opener: str, body: str, ending: BodyEnding, tools: OfferedTools
) -> ParsedBody | None:
    """Read JSON, a call in Python, or plain code for an interpreter if one is on offer."""
    parsed = read_body(opener, body, ending, tools)
    if parsed is not None:
        return parsed
    code = body.strip()
    interpreter = next((name for name in _INTERPRETERS if name in tools.names), None)
    if interpreter is None or not code:
        return None
    unmarked = code if ending is BodyEnding.OPEN else None
    return ParsedBody(
        [FoundCall(interpreter, lenient_json.encode({"code": code}), arguments_if_cut=unmarked)]
    )


_APERTUS_BEGUN = re.compile(r"\s*\[\s*\{\s*\"([\w.:/-]+)\"\s*:")


def _read_apertus(
    opener: str, body: str, ending: BodyEnding, tools: OfferedTools
) -> ParsedBody | None:
    """Read calls of the shape `[{"name": {arguments}}, …]`."""
    value = lenient_json.decode_leniently_at(body, 0)
    if value is None:
        begun = _APERTUS_BEGUN.match(body)
        if ending is BodyEnding.CLOSED or begun is None:
            return None
        return ParsedBody(
            [
                FoundCall(
                    begun.group(1), mark_unreadable(body.strip()), cut=ending is BodyEnding.OPEN
                )
            ]
        )
    decoded, end, repairs = value
    found: list[FoundCall | str] = []
    for member in lenient_json.as_list(decoded) or []:
        shape = lenient_json.as_object(member)
        if shape is None or len(shape) != 1:
            return read_json_calls(body, ending)
        name, arguments = next(iter(shape.items()))
        if not isinstance(arguments, (dict, str)):
            return read_json_calls(body, ending)
        found.append(FoundCall(name, lenient_json.encode_arguments(arguments), tuple(repairs)))
    if not found:
        return None
    return ParsedBody(found, rest=end if ending is BodyEnding.OPEN else None)


def _build_closing_pattern(opener: str) -> str:
    return f"</{re.escape(opener[1:-1])}>"


def _build_closing_pattern_of_named(opener: str) -> str:
    """Return the pattern that closes `<function=f>` or `<invoke name="f">`."""
    if opener.endswith("/>"):
        return ""  # a call without arguments: it ends where it begins
    match = re.match(rf"<({PREFIX})(function|invoke)", opener)
    return rf"</{re.escape(match.group(1))}{match.group(2)}>" if match else r"(?!)"


_WRAPPER = rf"{PREFIX}(?:{_TAGS})(?::[0-9a-f]{{4,16}})?|TOOLCALL|longcat_tool_call"
BETWEEN_CALLS = rf"</(?P<wrapper>{_WRAPPER})>\s*(?:<(?P=wrapper)>)?|<(?:{_WRAPPER})>"
"""Matches what stands between two calls: the end of a wrapper, the beginning of one, or both."""

TAGGED = CallForm(
    "tagged",
    rf"<(?:{_WRAPPER})>",
    _build_closing_pattern,
    read_body,
)
FUNCTION = CallForm(
    "function",
    r"""<function(?:=|\s+name=)\s?["']?[\w.:/$-]{1,64}["']?\s?/?>""",
    _build_closing_pattern_of_named,
    _read_marked_opener,
)
INVOKE = CallForm(
    "invoke",
    rf"""<{PREFIX}invoke\s+name=\s?["']?[\w.:/$-]{{1,64}}["']?\s?/?>""",
    _build_closing_pattern_of_named,
    _read_marked_opener,
)
BARRED = CallForm(
    "barred",
    r"<\|tool_calls?\|>",
    lambda opener: rf"<\|/tool_calls?\|>|</tool_calls?\|?>|(?={re.escape(opener)})",
    read_body,
)
FUNCTOOLS = CallForm("functools", r"functools(?=\[)", lambda _: r"(?!)", read_body)
PYTHON_TAG = CallForm("python-tag", r"<\|python_tag\|>", lambda _: _TOKEN_ENDS, _read_python_tag)
PYTHON_START = CallForm(
    "python-start", r"<\|python_start\|>", lambda _: r"<\|python_end\|>", _read_python_tag
)
LFM = CallForm("lfm", r"<\|tool_call_start\|>", lambda _: r"<\|tool_call_end\|>", read_body)
ACTION = CallForm("action", r"<\|START_ACTION\|>", lambda _: r"<\|END_ACTION\|>", read_body)
PLUGIN = CallForm(
    "plugin", r"<\|action_start\|>\s?<\|plugin\|>", lambda _: r"<\|action_end\|>", read_body
)
APERTUS = CallForm("apertus", r"<\|tools_prefix\|>", lambda _: r"<\|tools_suffix\|>", _read_apertus)

FORMS = (
    TAGGED,
    FUNCTION,
    INVOKE,
    BARRED,
    FUNCTOOLS,
    PYTHON_TAG,
    PYTHON_START,
    LFM,
    ACTION,
    PLUGIN,
    APERTUS,
)
