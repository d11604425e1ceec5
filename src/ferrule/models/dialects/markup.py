"""Calls written as mark-up: Qwen3-Coder and Seed functions, invocations (Anthropic, DeepSeek DSML, MiniMax,
Step), GLM's keys and values, Kimi K3's open/close/sep marks.

    <function=f><parameter=k>v</parameter></function>
    <invoke name="f"><parameter name="k">v</parameter></invoke>      with a prefix: antml: minimax: ｜DSML｜ …
    f<arg_key>k</arg_key><arg_value>v</arg_value>

It is not XML: values are raw text without escapes. A closing mark ends a value only if what may follow a
value follows it, and examples inside a value are skipped as long as they are balanced. A value is text
if the tool's schema (or a `string` attribute) says so, JSON if it is JSON, else text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import Call
from ferrule.core.frozen import frozen

from . import jsonish
from .form import Ending, Found, Parsed, Tools

PREFIX = r"(?:(?:antml|minimax|steptml|seed|atem|mm|longcat|xai):|[|｜]{1,2} ?DSML ?[|｜]{1,2} ?)?"
"""What may stand before the tag names. DeepSeek's bars are U+FF5C; ASCII bars are seen too."""

M3 = "]<]minimax[>["
"""MiniMax M3 puts this before every tag."""

_TEXT, _JSON = "text", "json"


@frozen
class _Grammar:
    """One kind of mark-up. `opens` has the tool's name as group 1, `value` the parameter's (and attributes)."""

    opens: re.Pattern[str]
    closes: re.Pattern[str]
    value: re.Pattern[str]
    ends: re.Pattern[str]
    follows: re.Pattern[str]


_P = PREFIX
_FUNCTION = _Grammar(
    re.compile(r"""<function(?:=|\s+name=)\s*["']?([^"'<>\n]+?)["']?\s*>"""),
    re.compile(r"</function>"),
    re.compile(r"""<param(?:eter)?(?:=|\s+name=)\s*["']?([^"'<>\n]+?)["']?()\s*>"""),
    re.compile(r"</param(?:eter)?>"),
    re.compile(r"\s*(?:<param(?:eter)?[=\s]|</function>|</(?:seed:)?tool_call>|\Z)"),
)
_INVOKE = _Grammar(
    re.compile(rf"""<{_P}invoke\s+name=\s*["']?([^"'<>\n]+?)["']?\s*>"""),
    re.compile(rf"</{_P}invoke>"),
    # A quoted name ends at its quote: attributes may follow, and a name may hold blanks.
    re.compile(
        rf"""<{_P}parameter\s+name=\s*["']?((?<=["'])[^"'<>\n]+(?=["'])|[^"'<>\n]+?)["']?((?:\s+[^<>\n]*)?)>"""
    ),
    re.compile(rf"</{_P}parameter>"),
    re.compile(rf"\s*(?:<{_P}parameter\s|</{_P}invoke>|\Z)"),
)
_PAIRS = _Grammar(
    re.compile(r"\s*([A-Za-z_][\w.:/-]*)\s*(?=<arg_key)"),
    re.compile(r"\Z"),
    re.compile(r"<arg_key(?::\w+)?>\s*([^<>]+?)\s*</arg_key(?::\w+)?>()\s*<arg_value(?::\w+)?>"),
    re.compile(r"</arg_value(?::\w+)?>"),
    re.compile(r"\s*(?:<arg_key|\Z)"),
)
_CHILD = re.compile(r"\s*<([A-Za-z_][\w.-]*)>")
_SPACE = re.compile(r"\s*")
_BARE_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_IS_TEXT = re.compile(r"""\bstring\s*=\s*["']?(true|false)""")


def read_markup(body: str, ending: Ending, tools: Tools) -> Parsed | None:
    """Whatever mark-up a body between call marks holds."""
    if M3 in body:
        # Offsets would not fit the original any more, so what follows the calls is handed on as prose.
        parsed = read_markup(plain := body.replace(M3, ""), ending, tools)
        if parsed is not None and parsed.rest is not None:
            parsed.items += [plain[parsed.rest :]] if plain[parsed.rest :].strip() else []
            parsed.rest = None
        return parsed
    for grammar in (_FUNCTION, _INVOKE):
        if grammar.opens.search(body):
            return _read(body, grammar, ending, tools)
    if _PAIRS.opens.match(body):
        return _read_pairs(body, ending, tools)
    if ending is not Ending.OPEN:
        return _read_bare(body, tools)
    return None


def _read(body: str, grammar: _Grammar, ending: Ending, tools: Tools) -> Parsed | None:
    parsed = Parsed()
    at = 0
    while opened := grammar.opens.search(body, at):
        if body[at : opened.start()].strip():
            parsed.items.append(body[at : opened.start()])
        call, end = _call(body, opened, grammar, ending, tools)
        if call is None:
            return None
        parsed.items.append(call)
        at = end
    if ending is Ending.OPEN and parsed.calls and not parsed.calls[-1].cut:
        parsed.rest = at
    elif body[at:].strip():
        parsed.items.append(body[at:])
    return parsed


def _call(
    body: str, opened: re.Match[str], grammar: _Grammar, ending: Ending, tools: Tools
) -> tuple[Found | None, int]:
    """One call and where it ends. None: not whole yet."""
    tool, at = opened.group(1).strip(), opened.end()
    if (whole := _json_body(body, at, grammar, tool)) is not None:
        return whole
    if (children := _children(body, at, grammar, tool, tools)) is not None:
        return children
    values: dict[str, Any] = {}
    while parameter := _next(grammar.value, body, at):
        span = _value_end(body, parameter.end(), grammar, strict=ending is not Ending.FORCED)
        if span is None:
            break
        raw = body[parameter.end() : span[0]]
        if ending is not Ending.CLOSED and grammar.opens.search(raw):
            break  # a call within a value that does not close: whose parameter comes next is a guess
        values[parameter.group(1)] = _value(raw, tool, parameter.group(1), parameter.group(2), tools)
        at = span[1]
    begin = _SPACE.match(body, at)
    closed = grammar.closes.match(body, begin.end() if begin else at)
    if closed:
        return Found(tool, jsonish.encode(values)), closed.end()
    if ending is Ending.CLOSED:
        return None, at
    if ending is Ending.FORCED and re.match(r"\s*(?:</|<(?:\w+:)?(?:function|invoke)\b|\Z)", body[at:]):
        return Found(tool, jsonish.encode(values), ("its closing tag was missing",)), at
    inner = body[opened.end() :].strip()
    if ending is Ending.OPEN and inner[:1] not in ("<", "{"):
        return None, at  # words about a tag, not a call
    return Found(tool, inner, cut=ending is Ending.OPEN), len(body)


def _json_body(body: str, at: int, grammar: _Grammar, tool: str) -> tuple[Found, int] | None:
    """`<function=f>{"k": 1}</function>` (Llama's and Functionary's way)."""
    value = jsonish.value_at(body, at) if body[at:].lstrip().startswith("{") else None
    if value is None or not isinstance(value[0], dict):
        return None
    begin = _SPACE.match(body, value[1])
    end = begin.end() if begin else value[1]
    closed = grammar.closes.match(body, end)
    call = Found(tool, jsonish.arguments(value[0]), tuple(value[2]))
    return call, closed.end() if closed else value[1]


def _children(body: str, at: int, grammar: _Grammar, tool: str, tools: Tools) -> tuple[Found, int] | None:
    """`<invoke name="f"><city>Paris</city></invoke>`: the tag is the parameter (MiniMax M3)."""
    values: dict[str, Any] = {}
    while child := _CHILD.match(body, at):
        if child.group(1) in ("parameter", "param"):
            return None
        end = body.find(f"</{child.group(1)}>", child.end())
        if end < 0:
            return None
        values[child.group(1)] = _value(body[child.end() : end], tool, child.group(1), "", tools)
        at = end + len(child.group(1)) + 3
    begin = _SPACE.match(body, at)
    closed = grammar.closes.match(body, begin.end() if begin else at)
    return (Found(tool, jsonish.encode(values)), closed.end()) if values and closed else None


def _next(pattern: re.Pattern[str], body: str, at: int) -> re.Match[str] | None:
    begin = _SPACE.match(body, at)
    return pattern.match(body, begin.end() if begin else at)


def _value_end(body: str, at: int, grammar: _Grammar, *, strict: bool) -> tuple[int, int] | None:
    """Where a value ends and where its closing mark does. Loosely, the next mark of any kind ends it."""
    if not strict:
        end = grammar.ends.search(body, at)
        opened = re.compile(rf"\n?\s*(?:{grammar.value.pattern}|{grammar.closes.pattern})").search(body, at)
        if opened and opened.group().strip() and (end is None or opened.start() < end.start()):
            return opened.start(), opened.start()
        return (end.start(), end.end()) if end else None
    inside = 0
    seen = at
    for end in grammar.ends.finditer(body, at):
        inside += sum(1 for _ in grammar.value.finditer(body, seen, end.start()))
        seen = end.end()
        if inside:
            inside -= 1
        elif grammar.follows.match(body, end.end()):
            return end.start(), end.end()
    return None


def _value(raw: str, tool: str, parameter: str, attributes: str, tools: Tools) -> Any:
    said = _IS_TEXT.search(attributes)
    text = True if said and said.group(1) == "true" else False if said else tools.takes_text(tool, parameter)
    value = raw.removeprefix("\r").removeprefix("\n").removesuffix("\n").removesuffix("\r")
    if said:
        value = raw
    if text is True:
        return value
    decoded = jsonish.strict(value)
    if decoded is not None and not value[decoded[1] :].strip():
        return decoded[0]
    if text is False:
        repaired = jsonish.decode(value)
        return repaired[0] if repaired else value
    return value


def _read_pairs(body: str, ending: Ending, tools: Tools) -> Parsed | None:
    head = _PAIRS.opens.match(body)
    if head is None:
        return None
    if ending is Ending.OPEN:
        return Parsed([Found(head.group(1), body[head.end() :].strip(), cut=True)])
    tool, at = head.group(1), head.end()
    values: dict[str, Any] = {}
    while pair := _next(_PAIRS.value, body, at):
        span = _value_end(body, pair.end(), _PAIRS, strict=ending is Ending.CLOSED)
        if span is None:
            break
        values[pair.group(1)] = _value(body[pair.end() : span[0]], tool, pair.group(1), "", tools)
        at = span[1]
    rest = body[at:].strip()
    if not rest:
        return Parsed([Found(tool, jsonish.encode(values))])
    if ending is Ending.CLOSED:
        return None
    return Parsed([Found(tool, body[head.end() :].strip())])


def _read_bare(body: str, tools: Tools) -> Parsed | None:
    """`<tool_call>now</tool_call>`, `name` and JSON below it, or a tag that is the tool's name."""
    text = body.strip()
    if _BARE_NAME.fullmatch(text) and (tools.near(text) if tools else not body.startswith(" ")):
        return Parsed([Found(text, "{}")])
    name, _, below = text.partition("\n")
    if _BARE_NAME.fullmatch(name.strip()) and below.lstrip().startswith("{"):
        decoded = jsonish.decode(below)
        if decoded is None or not isinstance(decoded[0], dict):
            return None
        return Parsed([Found(name.strip(), jsonish.arguments(decoded[0]), tuple(decoded[1]))])
    tag = _CHILD.match(text)
    if tag is None or not text.endswith(f"</{tag.group(1)}>"):
        return None
    named = _Grammar(
        re.compile(rf"<({re.escape(tag.group(1))})>"),
        re.compile(rf"</{re.escape(tag.group(1))}>"),
        *(_INVOKE.value, _INVOKE.ends, _INVOKE.follows),
    )
    return _read(text, named, Ending.CLOSED, tools)


# ---- writing


def _shown(value: Any) -> str:
    """A value as text that is read back as itself: as it is, or as JSON where it would be misread."""
    if isinstance(value, str):
        plain = _value(value, "", "", "", Tools())
        if plain == value and "<" not in value and M3 not in value and value == value.strip():
            return value
        return jsonish.encode(value).replace("<", "\\u003c")
    return jsonish.encode(value).replace("<", "\\u003c")


def _values(call: Call) -> dict[str, Any] | None:
    decoded = jsonish.strict(call.arguments)
    return jsonish.as_object(decoded[0]) if decoded else None


def _key(name: str) -> bool:
    return bool(re.fullmatch(r"[\w.:$@-]+(?: [\w.:$@-]+)*", name))


def write(call: Call, opens: str, parameter: str, closes: str) -> str:
    """A call by three templates with `{name}`, `{key}`, `{value}`. JSON stands inside where keys are odd."""
    values = _values(call)
    if values is None or not all(map(_key, values)):
        shown = call.arguments if values is not None else jsonish.encode(call.arguments)
        return opens.format(name=call.tool) + "\n" + shown.replace("<", "\\u003c") + "\n" + closes
    inner = "".join(parameter.format(key=key, value=_shown(value)) for key, value in values.items())
    return opens.format(name=call.tool) + "\n" + inner + closes


def render_functions(calls: Sequence[Call], tag: str = "tool_call") -> str:
    """Qwen3-Coder (and Seed with `seed:tool_call`)."""
    return "\n".join(
        f"<{tag}>\n"
        + write(call, "<function={name}>", "<parameter={key}>\n{value}\n</parameter>\n", "</function>")
        + f"\n</{tag}>"
        for call in calls
    )


def render_invokes(calls: Sequence[Call], wrapper: str, prefix: str = "") -> str:
    """Invocations in one wrapper. DSML says of each value whether it is text."""
    written: list[str] = []
    for call in calls:
        parameter = f'<{prefix}parameter name="{{key}}">{{value}}</{prefix}parameter>\n'
        written.append(write(call, f'<{prefix}invoke name="{{name}}">', parameter, f"</{prefix}invoke>"))
    return f"<{wrapper}>\n" + "\n".join(written) + f"\n</{wrapper}>"


def render_dsml(calls: Sequence[Call]) -> str:
    """DeepSeek V3.2: `string="true"` values are raw text, the others JSON."""
    bar = "｜DSML｜"
    written: list[str] = []
    for call in calls:
        values = _values(call)
        if values is None or not all(map(_key, values)):
            written.append(write(call, f'<{bar}invoke name="{{name}}">', "", f"</{bar}invoke>"))
            continue
        lines: list[str] = []
        for key, value in values.items():
            raw = isinstance(value, str) and "<" not in value
            shown = value if raw else jsonish.encode(value).replace("<", "\\u003c")
            flag = "true" if raw else "false"
            lines.append(f'<{bar}parameter name="{key}" string="{flag}">{shown}</{bar}parameter>\n')
        written.append(f'<{bar}invoke name="{call.tool}">\n' + "".join(lines) + f"</{bar}invoke>")
    return f"<{bar}function_calls>\n" + "\n".join(written) + f"\n</{bar}function_calls>"


def render_pairs(calls: Sequence[Call]) -> str:
    """GLM."""
    written: list[str] = []
    for call in calls:
        values = _values(call)
        if values is None or not all(map(_key, values)):
            shown = call.arguments if values is not None else jsonish.encode(call.arguments)
            written.append(f"<tool_call>{call.tool}\n{shown.replace('<', chr(92) + 'u003c')}\n</tool_call>")
            continue
        pairs = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_shown(value)}</arg_value>\n"
            for key, value in values.items()
        )
        written.append(f"<tool_call>{call.tool}\n{pairs}</tool_call>")
    return "\n".join(written)
