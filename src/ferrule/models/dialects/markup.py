"""Calls written as mark-up: Qwen3-Coder and Seed functions, invocations (Anthropic, DeepSeek DSML,
MiniMax, Step), GLM's keys and values, Kimi K3's open/close/sep marks.

    <function=f><parameter=k>v</parameter></function>
    <invoke name="f"><parameter name="k">v</parameter></invoke>      with a prefix: antml: minimax: ｜DSML｜ …
    f<arg_key>k</arg_key><arg_value>v</arg_value>
    <|open|>call tool="f" index="1"<|sep|><|open|>argument key="k" type="string"<|sep|>v<|close|>argument<|sep|>…

It is not XML: values are raw text without escapes, so a value may hold marks. One rule for all of
them (`Grammar`):

- A value ends at its closing mark if the next value or the end of the call follows at once.
- Where no value holds marks of its own kind, that is how the call is read.
- Where one does, the call is read only if there is exactly one way to read the whole reply that
  fits the tool's parameters; else it is an error that the model is told of. So is a value that may
  be text as well as something else.
- Several calls are read only if they follow each other as their family writes them, and if each
  fits its tool. In a reply that was cut, no call is (`Reader`).

What it cannot see: a value that holds, letter by letter, what a family writes between two values or
two calls, and nothing more. That is two values or two calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

from ferrule.core.calls import Call
from ferrule.core.frozen import frozen

from . import lenient_json
from .dialect import Ending, Found, Parsed, Tools, kind_of, unreadable

PREFIX = r"(?:(?:antml|minimax|steptml|seed|atem|mm|longcat|xai):|[|｜]{1,2} ?DSML ?[|｜]{1,2} ?)?"
"""What may stand before the tag names. DeepSeek's bars are U+FF5C; ASCII bars are seen too."""

M3 = "]<]minimax[>["
"""MiniMax M3 puts this before every tag: a tag without it is text."""

_MOST_ENDS = 8
"""Closing marks within one call that are tried where its reading is in doubt. With more of them it
is an error.
"""


@frozen
class Grammar:
    """One kind of mark-up.

    Groups: `opens` has `tool` and, if a call may be empty, `empty`; `value` has `key` and may have
    `attributes`; where `ends` has a `key` it closes the value of that key alone. `padded`: a line
    break at both ends of a value belongs to the marks. `part` is anything that could be a piece of
    a mark.
    """

    opens: re.Pattern[str]
    closes: re.Pattern[str]
    value: re.Pattern[str]
    ends: re.Pattern[str]
    part: re.Pattern[str]
    padded: bool = False

    def closed(self, body: str, at: int) -> int | None:
        """Where the closing mark of a call ends that begins at an offset."""
        match = self.closes.match(body, at)
        return match.end() if match else None

    def goes_on(self, body: str, at: int) -> bool:
        """Whether what may follow a value follows it."""
        at = _past_space(body, at)
        return self.value.match(body, at) is not None or self.closed(body, at) is not None

    def has_marks(self, text: str) -> bool:
        """Whether any mark stands in a text, or a piece of one."""
        return self.part.search(text) is not None

    def left_over(self, text: str) -> bool:
        """Whether a mark of a call or of a value stands in what is none."""
        return any(pattern.search(text) for pattern in (self.opens, self.value, self.ends))

    def may_follow(self, text: str) -> bool:
        """Whether a text may follow a call: no mark is left over before another call begins."""
        following = self.opens.search(text)
        return not self.left_over(text[: following.start()] if following else text)

    def is_paired(self, value: str) -> bool:
        """Whether each value that opens in a value is closed in it, too: else the closing mark of
        one may be missing.
        """
        opened = sum(1 for _ in self.value.finditer(value))
        return opened <= sum(1 for _ in self.ends.finditer(value))


_NAME = r"""\s*["']?(?P<tool>[^"'<>\n]+?)["']?\s*(?P<empty>/)?>"""
# A quoted name ends at its quote: attributes may follow, and a name may hold blanks.
_KEY_NAME = r"""\s*["']?(?P<key>(?<=["'])[^"'<>\n]+(?=["'])|[^"'<>\n]+?)["']?(?P<attributes>(?:\s+[^<>\n]*)?)>"""


@cache
def _functions(*, padded: bool) -> Grammar:
    return Grammar(
        re.compile(rf"<function(?:=|\s+name=){_NAME}"),
        re.compile(r"</function>"),
        re.compile(rf"<param(?:eter)?(?:=|\s+name=){_KEY_NAME}"),
        re.compile(r"</param(?:eter)?>"),
        re.compile(r"</?(?:function|param)"),
        padded,
    )


@cache
def _invocations(prefix: str) -> Grammar:
    tag = re.escape(prefix)
    return Grammar(
        re.compile(rf"<{tag}invoke\s+name={_NAME}"),
        re.compile(rf"</{tag}invoke>"),
        re.compile(rf"<{tag}parameter\s+name={_KEY_NAME}"),
        re.compile(rf"</{tag}parameter>"),
        re.compile(tag or r"</?(?:invoke|parameter)"),
    )


@cache
def _children(opens: str, closes: str, names: str, *, mark: str = "") -> Grammar:
    """The tag is the parameter (MiniMax M3, and models that take tags for names)."""
    before = re.escape(mark)
    return Grammar(
        re.compile(opens),
        re.compile(closes),
        re.compile(rf"{before}<(?P<key>{names})>"),
        re.compile(rf"{before}</(?P<key>{names})>"),
        re.compile(before if mark else rf"{opens}|{closes}|</?(?:{names})>"),
    )


_TAG = r"[A-Za-z_][\w.-]*"
_PAIRS_BEGIN = re.compile(r"\s*[A-Za-z_][\w.:/-]*\s*<arg_key(?P<suffix>(?::\w+)?)>")


@cache
def _pairs(suffix: str, *, ended: bool = True) -> Grammar:
    """GLM's keys and values; Hunyuan's names of tags have a suffix. `ended`: the body's end is that
    of the call.
    """
    end = re.escape(suffix)
    name = rf"(?:\A|<tool_calls?{end}>)\s*(?P<tool>[A-Za-z_][\w.:/-]*)\s*(?=<arg_key{end}>)"
    key = rf"<arg_key{end}>\s*(?P<key>[^<>]+?)\s*</arg_key{end}>"
    return Grammar(
        re.compile(name),
        re.compile(rf"(?=</tool_calls?{end}>)" + (r"|\Z" if ended else "")),
        re.compile(rf"{key}\s*<arg_value{end}>"),
        re.compile(rf"</arg_value{end}>"),
        re.compile(rf"</?arg_(?:key|value){end}"),
    )


_ATTRIBUTES = r"(?P<attributes>(?:\s+\w+=\"[^\"]*\")*)\s*<\|sep\|>"
XTML = Grammar(
    re.compile(rf"<\|open\|>call{_ATTRIBUTES.replace('attributes', 'tool')}"),
    re.compile(r"<\|close\|>call<\|sep\|>"),
    re.compile(rf"<\|open\|>argument{_ATTRIBUTES.replace('attributes', 'key')}"),
    re.compile(r"<\|close\|>argument<\|sep\|>"),
    re.compile(r"<\|(?:open|close)\|>"),
)
_XTML_JSON = re.compile(r"\s*<\|open\|>json[^<>]{0,40}<\|sep\|>")
_XTML_JSON_END = re.compile(r"\s*<\|close\|>json<\|sep\|>")

TAIL = (
    rf"</{PREFIX}parameter>\s{{0,8}}</{PREFIX}invoke>|</param(?:eter)?>\s{{0,8}}</function>"
    r"|</arg_value(?::\w{1,16})?>\s{0,8}(?:</tool_calls?(?::\w{1,16})?>|\Z)"
    r"|<\|close\|>argument<\|sep\|>\s{0,8}<\|close\|>call<\|sep\|>"
    rf"|{re.escape(M3)}</[\w.-]{{1,40}}>\s{{0,8}}{re.escape(M3)}</invoke>"
)
"""How a call in mark-up ends. Where this stands in prose, a call ended before its end: a value held
closing marks.
"""
TAIL_BEGINS = (
    r"</(?:[^<>\s/]{1,16})?param(?:eter)?>\s{0,8}(?:<[^<>\n]{0,40})?|</arg_value(?::\w{1,16})?>\s{0,8}(?:<[^<>\n]{0,40})?"
    r"|<\|close\|>argument<\|sep\|>\s{0,8}(?:<[^\n]{0,24})?"
    rf"|{re.escape(M3)}(?:<(?:/[\w.-]{{0,40}}(?:>\s{{0,8}}(?:\][^\n]{{0,40}})?)?)?)?"
)
"""What may be the beginning of a tail."""

VALUE_MARK = (
    rf"<{PREFIX}param(?:eter)?(?:=|\s{{1,8}}name=)|</{PREFIX}param(?:eter)?>|</?arg_(?:key|value)(?::\w{{1,16}})?>"
    r"|<\|(?:open|close)\|>argument\b"
    rf"|{re.escape(M3)}(?!</?tool_call>)"
)
"""What opens or closes a value. Where this stands behind a call and in no other, the call may not
have ended.
"""

BETWEEN = rf"{re.escape(M3)}</tool_call>\s*{re.escape(M3)}<tool_call>"
"""What stands between two calls in frames of their own; see `tagged.BETWEEN` for tags. Kimi K3
writes one frame.
"""

_FRAMES = re.compile(rf"{re.escape(M3)}|</?tool_calls?(?::\w+)?>")
"""What may stand between two calls of one body and is no text."""
_CHILD = re.compile(rf"\s*<({_TAG})>")
_SPACE = re.compile(r"\s*")
_BARE_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_IS_TEXT = re.compile(r"""\bstring\s*=\s*["']?(true|false)""")
_INVOKES = re.compile(rf"""<(?P<prefix>{PREFIX})invoke\s+name={_NAME}""")

Raw = list[tuple[re.Match[str], str]]
"""The values of a call as they stand: what opened each of them, and its text."""


class _Ambiguous(ValueError):
    """A value that may be text as well as something else."""


def _past_space(body: str, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def read_markup(body: str, ending: Ending, tools: Tools, *, padded: bool = True) -> Parsed | None:
    """Whatever mark-up a body between call marks holds. `padded`: see `Grammar`; of functions
    only.
    """
    grammar = _grammar_of(body, ending, tools, padded=padded)
    if grammar is not None:
        return read_calls(body, grammar, ending, tools)
    if ending is not Ending.OPEN:
        return _read_bare(body, tools)
    return None


def _grammar_of(body: str, ending: Ending, tools: Tools, *, padded: bool) -> Grammar | None:
    """The kind of mark-up that a body begins with, by the first mark that opens a call."""
    if body.lstrip().startswith(M3):
        mark = re.escape(M3)
        return _children(rf"{mark}<invoke\s+name={_NAME}", rf"{mark}</invoke>", _TAG, mark=M3)
    pairs = _PAIRS_BEGIN.match(body)
    if pairs:
        return _pairs(pairs.group("suffix"), ended=ending is not Ending.OPEN)
    functions = _functions(padded=padded)
    function, invocation = functions.opens.search(body), _INVOKES.search(body)
    if function and (invocation is None or function.start() < invocation.start()):
        return functions
    if invocation is None:
        return None
    grammar = _invocations(invocation.group("prefix"))
    child = _CHILD.match(body, invocation.end())
    if child is None or child.group(1) in ("parameter", "param"):
        return grammar
    names = "|".join(map(re.escape, tools.parameters(invocation.group("tool").strip()))) or _TAG
    return _children(
        grammar.opens.pattern, rf"</{re.escape(invocation.group('prefix'))}invoke>", names
    )


def read_calls(body: str, grammar: Grammar, ending: Ending, tools: Tools) -> Parsed | None:
    """The calls of a body, by one grammar."""
    parsed = Parsed()
    first: re.Match[str] | None = None
    at = 0
    while opened := grammar.opens.search(body, at):
        between = body[at : opened.start()]
        if grammar.left_over(between):
            return _in_doubt(Parsed(), body, first or opened, grammar, ending, tools, stray=True)
        first = first or opened
        whole = _one(body, opened, grammar, tools)
        if whole is None:
            return _in_doubt(parsed, body, opened, grammar, ending, tools)
        if _FRAMES.sub("", between).strip():
            parsed.items.append(between)
        parsed.items.append(whole[0])
        at = whole[1]
    rest = body[at:]
    if first is None:
        return None
    if grammar.left_over(rest):
        return _in_doubt(Parsed(), body, first, grammar, ending, tools, stray=True)
    if ending is Ending.OPEN:
        parsed.rest = at
    elif _FRAMES.sub("", rest).strip():
        parsed.items.append(rest)
    return parsed


def _one(
    body: str, opened: re.Match[str], grammar: Grammar, tools: Tools
) -> tuple[Found, int] | None:
    """A call that can be read without a doubt, and where it ends."""
    if opened.groupdict().get("empty"):
        return _found(body, opened, grammar, [], opened.end(), tools), opened.end()
    if (json_body := _json_body(body, opened, grammar)) is not None:
        return json_body
    plain = next(_readings(body, opened.end(), grammar, frozenset(), first=True), None)
    if plain is None or any(grammar.has_marks(text) for _, text in plain[0]):
        return None
    if len({_spelling(parameter) for parameter, _ in plain[0]}) > 1:
        return None
    return _found(body, opened, grammar, plain[0], plain[1], tools), plain[1]


def _readings(
    body: str, at: int, grammar: Grammar, keys: frozenset[str], *, first: bool = False
) -> Iterator[tuple[Raw, int]]:
    """Every way to read the values of a call from an offset, and where it ends; the shortest values
    come first.

    `first`: only the way in which each value ends at its first possible end.
    """
    at = _past_space(body, at)
    stop = grammar.closed(body, at)
    if stop is not None:
        yield [], stop
        return
    opened = grammar.value.match(body, at)
    if opened is None or opened.group("key") in keys:
        return
    for text, end in _ends(body, opened, grammar):
        for others, stop in _readings(
            body, end, grammar, keys | {opened.group("key")}, first=first
        ):
            yield [(opened, text), *others], stop
        if first:
            return


def _ends(body: str, opened: re.Match[str], grammar: Grammar) -> Iterator[tuple[str, int]]:
    """Where a value may end: its text, and the offset after its closing mark."""
    for end in grammar.ends.finditer(body, opened.end()):
        if "key" in grammar.ends.groupindex and end.group("key") != opened.group("key"):
            continue
        if grammar.goes_on(body, end.end()):
            yield body[opened.end() : end.start()], end.end()


def _in_doubt(
    before: Parsed,
    body: str,
    opened: re.Match[str],
    grammar: Grammar,
    ending: Ending,
    tools: Tools,
    *,
    stray: bool = False,
) -> Parsed | None:
    """A body in which a call is not whole, or holds marks that may belong to it or to one of its
    values.

    `stray`: there are marks outside of the calls.
    """
    if ending is Ending.CLOSED:
        return None
    tool, inner = _tool(opened), body[opened.end() :].strip()
    ways = _clean_readings(body, opened, grammar, tools)
    if ending is Ending.OPEN and not before.calls and len(ways) == 1:
        raw, stop = ways[0]
        paired = all(grammar.is_paired(text) for _, text in raw)
        if paired and not grammar.left_over(body[stop:]):
            only = _found(body, opened, grammar, raw, stop, tools)
            return Parsed([replace(only, alone=True)], rest=stop)
    values, at = _complete_values(body, opened, grammar)
    if stray or ways or any(grammar.has_marks(text) for _, text in values):
        first = before.calls[0].tool if before.calls else tool
        problem = (
            f"a value in the call to `{first}` holds marks of calls: where it ends cannot be known"
        )
        return Parsed([Found(first, unreadable(body))], [problem], doubtful=True)
    if ending is Ending.FORCED and not body[at:].strip():
        repairs = ("its closing tag was missing",)
        before.items.append(_found(body, opened, grammar, values, at, tools, repairs))
    elif ending is Ending.OPEN and not inner.startswith(("<", "{", M3)):
        return before if before.calls else None  # words about a tag, not a call
    else:
        before.items.append(Found(tool, unreadable(inner), cut=ending is Ending.OPEN))
        before.doubtful = ending is Ending.FORCED
    return before


def _clean_readings(
    body: str, opened: re.Match[str], grammar: Grammar, tools: Tools
) -> list[tuple[Raw, int]]:
    """The ways to read a call that fit its tool and leave no mark over but those of other calls.

    Two at the most; too many marks count as two ways.
    """
    ends = islice(grammar.ends.finditer(body, opened.end()), _MOST_ENDS + 1)
    if sum(1 for _ in ends) > _MOST_ENDS:
        return [([], 0), ([], 0)]
    tool = _tool(opened)
    readings = (
        (raw, stop)
        for raw, stop in _readings(body, opened.end(), grammar, frozenset())
        if grammar.may_follow(body[stop:])
        and tools.fits(tool, [_key(grammar, parameter) for parameter, _ in raw])
    )
    return list(islice(readings, 2))


def _spelling(parameter: re.Match[str]) -> str:
    """How the mark that opens a value is spelled: a second spelling within a call may be text."""
    return parameter.string[parameter.start() : parameter.start("key")].strip()


def _key(grammar: Grammar, parameter: re.Match[str]) -> str:
    key = parameter.group("key")
    return attribute(key, "key") if grammar is XTML else key


def _complete_values(body: str, opened: re.Match[str], grammar: Grammar) -> tuple[Raw, int]:
    """The values of a call that has no end, as far as each of them ends, and where the last one
    does.
    """
    values: Raw = []
    at = opened.end()
    while parameter := grammar.value.match(body, _past_space(body, at)):
        end = grammar.ends.search(body, parameter.end())
        if end is None:
            break
        values.append((parameter, body[parameter.end() : end.start()]))
        at = end.end()
    return values, at


def _tool(opened: re.Match[str]) -> str:
    tool = opened.group("tool").strip()
    return attribute(tool, "tool") if tool.startswith("tool=") or ' tool="' in tool else tool


def attribute(text: str, name: str) -> str:
    """An attribute of a mark of Kimi K3."""
    match = re.search(rf'\b{name}="([^"]*)"', text)
    return match.group(1).replace("&quot;", '"').replace("&amp;", "&") if match else ""


def _found(
    body: str,
    opened: re.Match[str],
    grammar: Grammar,
    raw: Raw,
    stop: int,
    tools: Tools,
    repairs: tuple[str, ...] = (),
) -> Found:
    """The call that its values make, or the broken one that says that a value cannot be told from
    text.
    """
    tool = _tool(opened)
    source = body[opened.start() : stop]
    values: dict[str, Any] = {}
    try:
        for parameter, text in raw:
            key, said = parameter.group("key"), parameter.groupdict().get("attributes") or ""
            is_text = _IS_TEXT.search(said)
            text_said = None if is_text is None else is_text.group(1) == "true"
            if grammar is XTML:
                text_said = attribute(key, "type") == "string"
                key = _key(grammar, parameter)
            if grammar.padded:
                text = _unpadded(text)
                if text is None:
                    raise _Ambiguous
            values[key] = _value(text, tool, key, text_said, tools)
    except _Ambiguous:
        names = [_key(grammar, parameter) for parameter, _ in raw]
        alone = not tools.fits(tool, names)
        return Found(tool, unreadable(source), source=source, alone=alone)
    arguments = lenient_json.encode(values)
    return Found(tool, arguments, repairs, source=source, alone=not tools.admit(tool, values))


def _unpadded(text: str) -> str | None:
    """A value without the line break that its marks have at both ends; None where one end alone has
    it.
    """
    for newline in ("\r\n", "\n"):
        if text.startswith(newline) and text.endswith(newline) and len(text) >= 2 * len(newline):
            return text[len(newline) : -len(newline)]
    return None if text.startswith("\n") != text.endswith("\n") else text


def _json_body(body: str, opened: re.Match[str], grammar: Grammar) -> tuple[Found, int] | None:
    """`<function=f>{"k": 1}</function>` (Llama's and Functionary's way), or Kimi K3's block of
    JSON.
    """
    at = opened.end()
    block = _XTML_JSON.match(body, at) if grammar is XTML else None
    at = _past_space(body, block.end() if block else at)
    value = lenient_json.value_at(body, at) if body[at : at + 1] == "{" else None
    if value is None or not isinstance(value[0], dict):
        return None
    end = value[1]
    if block:
        closing = _XTML_JSON_END.match(body, end)
        end = closing.end() if closing else end
    stop = grammar.closed(body, _past_space(body, end))
    end = end if stop is None else stop
    source = body[opened.start() : end]
    arguments = lenient_json.arguments(value[0])
    return Found(_tool(opened), arguments, tuple(value[2]), source=source, escaped=True), end


def _value(raw: str, tool: str, parameter: str, said: bool | None, tools: Tools) -> Any:
    """A value as its marks or its schema say, else as JSON if it is that.

    Raises _Ambiguous where the schema takes text as well as what the text is as JSON: nothing says
    which was meant.
    """
    if said is True:
        return raw
    kinds = None if said is False else tools.kinds(tool, parameter)
    if kinds == frozenset(("string",)):
        return raw
    decoded = lenient_json.strict(raw)
    if decoded is not None and raw[decoded[1] :].strip():
        decoded = None
    if kinds is not None and "string" in kinds:
        if decoded is not None and kind_of(decoded[0]) in kinds - {"string"}:
            raise _Ambiguous
        return raw
    if decoded is not None:
        return decoded[0]
    if said is False or kinds is not None:
        repaired = lenient_json.decode(raw)
        return repaired[0] if repaired else raw
    return raw


def _read_bare(body: str, tools: Tools) -> Parsed | None:
    """`<tool_call>now</tool_call>`, `name` and JSON below it, or a tag that is the tool's name."""
    text = body.strip()
    if _BARE_NAME.fullmatch(text) and (tools.near(text) if tools else not body.startswith(" ")):
        return Parsed([Found(text, "{}")])
    name, _, below = text.partition("\n")
    if _BARE_NAME.fullmatch(name.strip()) and below.lstrip().startswith("{"):
        decoded = lenient_json.decode(below)
        if decoded is None or not isinstance(decoded[0], dict):
            return None
        return Parsed([Found(name.strip(), lenient_json.arguments(decoded[0]), tuple(decoded[1]))])
    tag = _CHILD.match(text)
    if tag is None or not text.endswith(f"</{tag.group(1)}>"):
        return None
    tool = tag.group(1)
    names = "|".join(map(re.escape, tools.parameters(tool))) or _TAG
    named = _children(rf"<(?P<tool>{re.escape(tool)})>", rf"</{re.escape(tool)}>", names)
    return read_calls(text, named, Ending.CLOSED, tools)


# ---- writing


def _values(call: Call) -> dict[str, Any] | None:
    decoded = lenient_json.strict(call.arguments)
    return lenient_json.as_object(decoded[0]) if decoded else None


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else lenient_json.encode(value)


def as_json(call: Call) -> str:
    """Arguments as JSON in which no mark can stand."""
    shown = call.arguments if _values(call) is not None else lenient_json.encode(call.arguments)
    return shown.replace("<", "\\u003c")


def write(call: Call, grammar: Grammar, opens: str, parameter: str, closes: str) -> str:
    """A call by three templates with `{name}`, `{key}`, `{value}` and `{text}` (whether the value
    is text).

    Its arguments stand in it as one JSON object where they would not be read back as they are.
    """
    values = _values(call)
    head = opens.format(name=call.tool)
    if values is not None:
        written = head + "\n"
        for key, value in values.items():
            text = "true" if isinstance(value, str) else "false"
            written += parameter.format(key=key, value=_shown(value), text=text)
        written += closes
        read = read_calls(written, grammar, Ending.CLOSED, Tools())
        if read is not None and [
            (one.tool, _values(Call("", "", one.arguments))) for one in read.calls
        ] == [(call.tool, values)]:
            return written
    return f"{head}\n{as_json(call)}\n{closes}"


def render_functions(calls: Sequence[Call]) -> str:
    """Qwen3-Coder."""
    parameter = "<parameter={key}>\n{value}\n</parameter>\n"
    return _render_functions(calls, "tool_call", _functions(padded=True), parameter)


def render_seed(calls: Sequence[Call]) -> str:
    """Seed: the values have no line breaks around them."""
    parameter = "<parameter={key}>{value}</parameter>\n"
    return _render_functions(calls, "seed:tool_call", _functions(padded=False), parameter)


def _render_functions(calls: Sequence[Call], tag: str, grammar: Grammar, parameter: str) -> str:
    written = [
        write(call, grammar, "<function={name}>", parameter, "</function>") for call in calls
    ]
    return "\n".join(f"<{tag}>\n{one}\n</{tag}>" for one in written)


def render_invokes(
    calls: Sequence[Call], wrapper: str, prefix: str = "", attributes: str = ""
) -> str:
    """Invocations in one wrapper."""
    grammar = _invocations(prefix)
    parameter = f'<{prefix}parameter name="{{key}}"{attributes}>{{value}}</{prefix}parameter>\n'
    opens, closes = f'<{prefix}invoke name="{{name}}">', f"</{prefix}invoke>"
    written = [write(call, grammar, opens, parameter, closes) for call in calls]
    return f"<{wrapper}>\n" + "\n".join(written) + f"\n</{wrapper}>"


def render_dsml(calls: Sequence[Call]) -> str:
    """DeepSeek V3.2: `string="true"` values are raw text, the others JSON."""
    bar = "｜DSML｜"
    return render_invokes(calls, f"{bar}function_calls", bar, ' string="{text}"')


def render_pairs(calls: Sequence[Call]) -> str:
    """GLM."""
    parameter = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
    return "\n".join(
        f"<tool_call>{write(call, _pairs(''), '{name}', parameter, '')}</tool_call>"
        for call in calls
    )


def render_xtml(calls: Sequence[Call]) -> str:
    """Kimi K3."""
    written = [_render_xtml(call, index + 1) for index, call in enumerate(calls)]
    return "<|open|>tools<|sep|>" + "".join(written) + "<|close|>tools<|sep|>"


def _render_xtml(call: Call, index: int) -> str:
    values = _values(call)
    opens, closes = (
        f'<|open|>call tool="{call.tool}" index="{index}"<|sep|>',
        "<|close|>call<|sep|>",
    )
    written = "".join(_xtml_argument(key, value) for key, value in (values or {}).items())
    read = read_calls(opens + written + closes, XTML, Ending.CLOSED, Tools())
    same = read is not None and [_values(Call("", "", one.arguments)) for one in read.calls] == [
        values
    ]
    block = f'<|open|>json type="object"<|sep|>{as_json(call)}<|close|>json<|sep|>'
    return opens + (written if same else block) + closes


def _xtml_argument(key: str, value: Any) -> str:
    kind = kind_of(value).replace("integer", "number")
    name = key.replace("&", "&amp;").replace('"', "&quot;")
    return (
        f'<|open|>argument key="{name}" type="{kind}"<|sep|>{_shown(value)}<|close|>argument<|sep|>'
    )
