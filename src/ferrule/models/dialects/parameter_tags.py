"""Calls written as mark-up.

    <function=f><parameter=k>v</parameter></function>            Qwen3-Coder, Seed
    <invoke name="f"><parameter name="k">v</parameter></invoke>  Anthropic, DeepSeek DSML, MiniMax,
                                                                 Step; with a prefix: antml:
                                                                 minimax: ｜DSML｜ …
    f<arg_key>k</arg_key><arg_value>v</arg_value>                GLM
    <|open|>call tool="f" index="1"<|sep|>                       Kimi K3
      <|open|>argument key="k" type="string"<|sep|>v<|close|>argument<|sep|>…

This is not XML: values are raw text without escapes, so a value may hold marks. All kinds follow
the same rules (`Grammar`):

- A value ends at its closing mark if the next value or the end of the call follows at once.
- Where no value holds marks of its own kind, that is how the call is read.
- Where one does, the call is read only if there is exactly one reading of the whole reply that fits
  the tool's parameters. Otherwise it is an error, and the model is told so. So is a value that may
  be text as well as something else.
- Several calls are read only if they follow each other as their family writes them, and if each
  fits its tool. In a reply that was cut, none is (`Reader`).

What this cannot see: a value that holds, letter by letter, what a family writes between two values
or two calls, and nothing more. That is read as two values or two calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

from ferrule.core.calls import ToolCall
from ferrule.core.value_class import frozen

from . import lenient_json
from .dialect import BodyEnding, FoundCall, ParsedBody, mark_unreadable
from .offered_tools import OfferedTools, json_type_of

PREFIX = r"(?:(?:antml|minimax|steptml|seed|atem|mm|longcat|xai):|[|｜]{1,2} ?DSML ?[|｜]{1,2} ?)?"
"""What may stand before the tag names. DeepSeek's bars are U+FF5C; ASCII bars are seen too."""

MINIMAX_PREFIX = "]<]minimax[>["
"""MiniMax M3 puts this before every tag. A tag without it is text."""

_MOST_ENDS = 8
"""Closing marks that are tried within a call whose reading is in doubt. More are an error."""


@frozen
class Grammar:
    """One kind of mark-up.

    Attributes:
        opens: Opens a call. Has the group `tool` and, if a call may be empty, `empty`.
        closes: Closes a call.
        value: Opens a value. Has the group `key`, and may have `attributes`.
        ends: Closes a value. If it has a group `key`, it closes the value of that key alone.
        part: Anything that could be a piece of a mark.
        padded: Whether a line break at both ends of a value belongs to the marks.
    """

    opens: re.Pattern[str]
    closes: re.Pattern[str]
    value: re.Pattern[str]
    ends: re.Pattern[str]
    part: re.Pattern[str]
    padded: bool = False

    def find_call_end(self, body: str, at: int) -> int | None:
        """Return where the closing mark of a call that begins at an offset ends, or None."""
        match = self.closes.match(body, at)
        return match.end() if match else None

    def can_follow_value(self, body: str, at: int) -> bool:
        """Return whether the text from an offset on may follow a value."""
        at = _past_space(body, at)
        return self.value.match(body, at) is not None or self.find_call_end(body, at) is not None

    def has_marks(self, text: str) -> bool:
        """Return whether a text holds a mark, or a piece of one."""
        return self.part.search(text) is not None

    def has_call_marks(self, text: str) -> bool:
        """Return whether a text outside of calls holds a mark of a call or of a value."""
        return any(pattern.search(text) for pattern in (self.opens, self.value, self.ends))

    def can_follow_call(self, text: str) -> bool:
        """Return whether a text may follow a call: no mark is left before another call begins."""
        following = self.opens.search(text)
        return not self.has_call_marks(text[: following.start()] if following else text)

    def is_paired(self, value: str) -> bool:
        """Return whether each value that opens inside a value is also closed in it.

        Otherwise the closing mark of one of them may be missing.
        """
        opened = sum(1 for _ in self.value.finditer(value))
        return opened <= sum(1 for _ in self.ends.finditer(value))


_NAME = r"""\s*["']?(?P<tool>[^"'<>\n]+?)["']?\s*(?P<empty>/)?>"""
# A quoted name ends at its quote: attributes may follow, and a name may hold blanks.
_KEY_NAME = (
    r"""\s*["']?(?P<key>(?<=["'])[^"'<>\n]+(?=["'])|[^"'<>\n]+?)["']?"""
    r"""(?P<attributes>(?:\s+[^<>\n]*)?)>"""
)


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
    """Return the grammar of calls whose tags are the parameters' names.

    MiniMax M3 writes these, and so do models that take tags for names.
    """
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
    """Return the grammar of GLM's keys and values.

    Args:
        suffix: What follows the names of the tags (Hunyuan has one).
        ended: Whether the end of the body is the end of the call.
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

CALL_END = (
    rf"</{PREFIX}parameter>\s{{0,8}}</{PREFIX}invoke>|</param(?:eter)?>\s{{0,8}}</function>"
    r"|</arg_value(?::\w{1,16})?>\s{0,8}(?:</tool_calls?(?::\w{1,16})?>|\Z)"
    r"|<\|close\|>argument<\|sep\|>\s{0,8}<\|close\|>call<\|sep\|>"
    rf"|{re.escape(MINIMAX_PREFIX)}</[\w.-]{{1,40}}>\s{{0,8}}{re.escape(MINIMAX_PREFIX)}</invoke>"
)
"""Matches the end of a call. Where it stands in prose, a value held closing marks, so that a call
was taken to end too early.
"""
CALL_END_BEGINS = (
    r"</(?:[^<>\s/]{1,16})?param(?:eter)?>\s{0,8}(?:<[^<>\n]{0,40})?|</arg_value(?::\w{1,16})?>\s{0,8}(?:<[^<>\n]{0,40})?"
    r"|<\|close\|>argument<\|sep\|>\s{0,8}(?:<[^\n]{0,24})?"
    rf"|{re.escape(MINIMAX_PREFIX)}(?:<(?:/[\w.-]{{0,40}}(?:>\s{{0,8}}(?:\][^\n]{{0,40}})?)?)?)?"
)
"""Matches what may become a `CALL_END`."""

VALUE_MARK = (
    rf"<{PREFIX}param(?:eter)?(?:=|\s{{1,8}}name=)|</{PREFIX}param(?:eter)?>|</?arg_(?:key|value)(?::\w{{1,16}})?>"
    r"|<\|(?:open|close)\|>argument\b"
    rf"|{re.escape(MINIMAX_PREFIX)}(?!</?tool_call>)"
)
"""Opens or closes a value. Where it follows a call and is in no other, that call may go on."""

BETWEEN_CALLS = rf"{re.escape(MINIMAX_PREFIX)}</tool_call>\s*{re.escape(MINIMAX_PREFIX)}<tool_call>"
"""Matches what stands between two calls in frames of their own; see `tagged_calls.BETWEEN_CALLS`
for tags. Kimi K3 writes one frame.
"""

_FRAMES = re.compile(rf"{re.escape(MINIMAX_PREFIX)}|</?tool_calls?(?::\w+)?>")
"""Matches what may stand between two calls of one body and is no text."""
_CHILD = re.compile(rf"\s*<({_TAG})>")
_SPACE = re.compile(r"\s*")
_BARE_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_IS_TEXT = re.compile(r"""\bstring\s*=\s*["']?(true|false)""")
_INVOKES = re.compile(rf"""<(?P<prefix>{PREFIX})invoke\s+name={_NAME}""")

Raw = list[tuple[re.Match[str], str]]
"""The values of a call as they stand: the match that opens each of them, and its text."""


class _Ambiguous(ValueError):
    """Raised for a value of which the marks do not say where it begins or ends."""


def _past_space(body: str, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def read_markup(
    body: str, ending: BodyEnding, tools: OfferedTools, *, padded: bool = True
) -> ParsedBody | None:
    """Read whatever mark-up a body between call marks holds.

    `padded` is for functions only; see `Grammar`.
    """
    grammar = _grammar_of(body, ending, tools, padded=padded)
    if grammar is not None:
        return read_calls(body, grammar, ending, tools)
    if ending is not BodyEnding.OPEN:
        return _read_bare(body, tools)
    return _read_named_json(body.strip())


def _grammar_of(
    body: str, ending: BodyEnding, tools: OfferedTools, *, padded: bool
) -> Grammar | None:
    """Return the kind of mark-up in a body, by the first mark that opens a call."""
    if body.lstrip().startswith(MINIMAX_PREFIX):
        mark = re.escape(MINIMAX_PREFIX)
        return _children(
            rf"{mark}<invoke\s+name={_NAME}", rf"{mark}</invoke>", _TAG, mark=MINIMAX_PREFIX
        )
    pairs = _PAIRS_BEGIN.match(body)
    if pairs:
        return _pairs(pairs.group("suffix"), ended=ending is not BodyEnding.OPEN)
    functions = _functions(padded=padded)
    function = functions.opens.search(body)
    invocation = _INVOKES.search(body)
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


def read_calls(
    body: str, grammar: Grammar, ending: BodyEnding, tools: OfferedTools
) -> ParsedBody | None:
    """Read the calls of a body by one grammar."""
    parsed = ParsedBody()
    first: re.Match[str] | None = None
    at = 0
    while opened := grammar.opens.search(body, at):
        between = body[at : opened.start()]
        if grammar.has_call_marks(between):
            return _read_doubtful(
                ParsedBody(), body, first or opened, grammar, ending, tools, stray=True
            )
        first = first or opened
        whole = _read_certain(body, opened, grammar, tools)
        if whole is None:
            return _read_doubtful(parsed, body, opened, grammar, ending, tools)
        if _FRAMES.sub("", between).strip():
            parsed.items.append(between)
        call, at = whole
        parsed.items.append(call)
    rest = body[at:]
    if first is None:
        return None
    if grammar.has_call_marks(rest):
        return _read_doubtful(ParsedBody(), body, first, grammar, ending, tools, stray=True)
    if ending is BodyEnding.OPEN:
        parsed.rest = at
    elif _FRAMES.sub("", rest).strip():
        parsed.items.append(rest)
    return parsed


def _read_certain(
    body: str, opened: re.Match[str], grammar: Grammar, tools: OfferedTools
) -> tuple[FoundCall, int] | None:
    """Return a call that can be read without a doubt, and where it ends."""
    if opened.groupdict().get("empty"):
        return _make_call(body, opened, grammar, [], opened.end(), tools), opened.end()
    json_call = _read_json_body(body, opened, grammar)
    if json_call is not None:
        return json_call
    reading = next(_readings(body, opened.end(), grammar, frozenset(), first=True), None)
    if reading is None:
        return None
    raw, stop = reading
    if any(grammar.has_marks(text) for _, text in raw):
        return None
    if len({_find_spelling(parameter) for parameter, _ in raw}) > 1:
        return None
    return _make_call(body, opened, grammar, raw, stop, tools), stop


def _readings(
    body: str, at: int, grammar: Grammar, keys: frozenset[str], *, first: bool = False
) -> Iterator[tuple[Raw, int]]:
    """Yield every reading of a call's values from an offset, and where the call ends.

    The shortest values come first. With `first` only the reading in which each value ends at its
    first possible end. `keys` are those of the values before.
    """
    at = _past_space(body, at)
    stop = grammar.find_call_end(body, at)
    if stop is not None:
        yield [], stop
        return
    opened = grammar.value.match(body, at)
    if opened is None or opened.group("key") in keys:
        return
    keys |= {opened.group("key")}
    for text, end in _value_ends(body, opened, grammar):
        for others, stop in _readings(body, end, grammar, keys, first=first):
            yield [(opened, text), *others], stop
        if first:
            return


def _value_ends(body: str, opened: re.Match[str], grammar: Grammar) -> Iterator[tuple[str, int]]:
    """Yield where a value may end: its text, and the offset after its closing mark."""
    for end in grammar.ends.finditer(body, opened.end()):
        if "key" in grammar.ends.groupindex and end.group("key") != opened.group("key"):
            continue
        if grammar.can_follow_value(body, end.end()):
            yield body[opened.end() : end.start()], end.end()


def _read_doubtful(
    before: ParsedBody,
    body: str,
    opened: re.Match[str],
    grammar: Grammar,
    ending: BodyEnding,
    tools: OfferedTools,
    *,
    stray: bool = False,
) -> ParsedBody | None:
    """Read a body in which a call is not whole, or whose marks may belong to one of its values.

    Args:
        before: What was read before the call.
        body: The body.
        opened: The mark that opens the call.
        grammar: The kind of mark-up.
        ending: How the body ended.
        tools: The tools on offer.
        stray: Whether there are marks outside of the calls.
    """
    if ending is BodyEnding.CLOSED:
        return None
    tool = _tool_name(opened)
    inner = body[opened.end() :].strip()
    readings = _clean_readings(body, opened, grammar, tools)
    if ending is BodyEnding.OPEN and not before.calls and len(readings) == 1:
        raw, stop = readings[0]
        is_paired = all(grammar.is_paired(text) for _, text in raw)
        if is_paired and not grammar.has_call_marks(body[stop:]):
            only = _make_call(body, opened, grammar, raw, stop, tools)
            return ParsedBody([replace(only, alone=True)], rest=stop)
    values, at = _complete_values(body, opened, grammar)
    if stray or readings or any(grammar.has_marks(text) for _, text in values):
        first = before.calls[0].tool if before.calls else tool
        problem = (
            f"a value in the call to `{first}` holds marks of calls: where it ends cannot be known"
        )
        return ParsedBody([FoundCall(first, mark_unreadable(body))], [problem], doubtful=True)
    if ending is BodyEnding.FORCED and not body[at:].strip():
        repairs = ("its closing tag was missing",)
        before.items.append(_make_call(body, opened, grammar, values, at, tools, repairs))
    elif ending is BodyEnding.OPEN and not inner.startswith(("<", "{", MINIMAX_PREFIX)):
        return before if before.calls else None  # the tag is only mentioned: this is no call
    else:
        before.items.append(FoundCall(tool, mark_unreadable(inner), cut=ending is BodyEnding.OPEN))
        before.doubtful = ending is BodyEnding.FORCED
    return before


def _clean_readings(
    body: str, opened: re.Match[str], grammar: Grammar, tools: OfferedTools
) -> list[tuple[Raw, int]]:
    """Return the readings of a call that fit its tool and leave only marks of other calls over.

    At most two of them; too many marks count as two readings.
    """
    ends = islice(grammar.ends.finditer(body, opened.end()), _MOST_ENDS + 1)
    if sum(1 for _ in ends) > _MOST_ENDS:
        return [([], 0), ([], 0)]
    tool = _tool_name(opened)
    clean: list[tuple[Raw, int]] = []
    for raw, stop in _readings(body, opened.end(), grammar, frozenset()):
        keys = [_key_name(grammar, parameter) for parameter, _ in raw]
        if grammar.can_follow_call(body[stop:]) and tools.accepts_names(tool, keys):
            clean.append((raw, stop))
            if len(clean) == 2:
                break
    return clean


def _find_spelling(parameter: re.Match[str]) -> str:
    """Return how the mark that opens a value is spelled.

    Within a call, a mark in a second spelling may be text.
    """
    return parameter.string[parameter.start() : parameter.start("key")].strip()


def _key_name(grammar: Grammar, parameter: re.Match[str]) -> str:
    key = parameter.group("key")
    return read_attribute(key, "key") if grammar is XTML else key


def _complete_values(body: str, opened: re.Match[str], grammar: Grammar) -> tuple[Raw, int]:
    """Return the values of a call without an end that are whole, and where the last one ends."""
    values: Raw = []
    at = opened.end()
    while parameter := grammar.value.match(body, _past_space(body, at)):
        end = grammar.ends.search(body, parameter.end())
        if end is None:
            break
        values.append((parameter, body[parameter.end() : end.start()]))
        at = end.end()
    return values, at


def _tool_name(opened: re.Match[str]) -> str:
    tool = opened.group("tool").strip()
    return read_attribute(tool, "tool") if tool.startswith("tool=") or ' tool="' in tool else tool


def read_attribute(text: str, name: str) -> str:
    """Return an attribute of a mark of Kimi K3; "" if it is not there."""
    match = re.search(rf'\b{name}="([^"]*)"', text)
    return match.group(1).replace("&quot;", '"').replace("&amp;", "&") if match else ""


def _make_call(
    body: str,
    opened: re.Match[str],
    grammar: Grammar,
    raw: Raw,
    stop: int,
    tools: OfferedTools,
    repairs: tuple[str, ...] = (),
) -> FoundCall:
    """Return the call that its values make.

    A value that may be text as well as something else is what it reads as, and that is said. Its
    arguments are unreadable if the marks of a value do not say what belongs to it.
    """
    tool = _tool_name(opened)
    source = body[opened.start() : stop]
    values: dict[str, Any] = {}
    try:
        for parameter, text in raw:
            key = _key_name(grammar, parameter)
            if grammar.padded:
                text = _strip_padding(text)
            values[key] = _convert(text, tool, key, _says_text(grammar, parameter), tools)
            if not isinstance(values[key], str) and _may_be_text(grammar, parameter, tool, tools):
                repairs = (*repairs, f"`{key}` may be text, and was read as {text.strip()[:60]}")
    except _Ambiguous:
        names = [_key_name(grammar, parameter) for parameter, _ in raw]
        alone = not tools.accepts_names(tool, names)
        return FoundCall(tool, mark_unreadable(source), source=source, alone=alone)
    arguments = lenient_json.encode(values)
    return FoundCall(
        tool, arguments, repairs, source=source, alone=not tools.accepts_values(tool, values)
    )


def _may_be_text(
    grammar: Grammar, parameter: re.Match[str], tool: str, tools: OfferedTools
) -> bool:
    """Return whether a value could be text as well as what it was read as."""
    if _says_text(grammar, parameter) is not None:
        return False
    return "string" in (tools.parameter_types(tool, _key_name(grammar, parameter)) or ())


def _says_text(grammar: Grammar, parameter: re.Match[str]) -> bool | None:
    """Return whether the mark that opens a value says that it is text; None if it does not say."""
    if grammar is XTML:
        return read_attribute(parameter.group("key"), "type") == "string"
    attributes = parameter.groupdict().get("attributes") or ""
    is_text = _IS_TEXT.search(attributes)
    return None if is_text is None else is_text.group(1) == "true"


def _strip_padding(text: str) -> str:
    """Return a value without the line break that its marks have at both ends.

    Raises _Ambiguous where only one end has it.
    """
    for newline in ("\r\n", "\n"):
        if text.startswith(newline) and text.endswith(newline) and len(text) >= 2 * len(newline):
            return text[len(newline) : -len(newline)]
    if text.startswith("\n") != text.endswith("\n"):
        raise _Ambiguous
    return text


def _read_json_body(
    body: str, opened: re.Match[str], grammar: Grammar
) -> tuple[FoundCall, int] | None:
    """Return a call whose arguments are JSON, and where it ends.

    Llama and Functionary write `<function=f>{"k": 1}</function>`, Kimi K3 a block of JSON.
    """
    at = opened.end()
    block = _XTML_JSON.match(body, at) if grammar is XTML else None
    at = _past_space(body, block.end() if block else at)
    value = lenient_json.decode_leniently_at(body, at) if body[at : at + 1] == "{" else None
    if value is None or not isinstance(value[0], dict):
        return None
    decoded, end, repairs = value
    if block:
        closing = _XTML_JSON_END.match(body, end)
        end = closing.end() if closing else end
    stop = grammar.find_call_end(body, _past_space(body, end))
    end = end if stop is None else stop
    call = FoundCall(
        _tool_name(opened),
        lenient_json.encode_arguments(decoded),
        tuple(repairs),
        source=body[opened.start() : end],
        escaped=True,
    )
    return call, end


def _convert(
    raw: str, tool: str, parameter: str, says_text: bool | None, tools: OfferedTools
) -> Any:
    """Return a value as its marks or its schema say, else as JSON if it is that.

    Where the schema takes text as well as what the text is as JSON, it is the latter, as in other
    engines: who means the text `null` where null is allowed is the exception.
    """
    if says_text is True:
        return raw
    types = None if says_text is False else tools.parameter_types(tool, parameter)
    if types == frozenset(("string",)):
        return raw
    decoded = lenient_json.decode_strictly(raw)
    if decoded is not None and raw[decoded[1] :].strip():
        decoded = None
    if types is not None and "string" in types:
        if decoded is not None and json_type_of(decoded[0]) in types - {"string"}:
            return decoded[0]
        return raw
    if decoded is not None:
        return decoded[0]
    if says_text is False or types is not None:
        repaired = lenient_json.decode_leniently(raw)
        return repaired[0] if repaired else raw
    return raw


def _read_bare(body: str, tools: OfferedTools) -> ParsedBody | None:
    """Read a name alone, a name with JSON below it, or a tag that is the tool's name."""
    text = body.strip()
    if _BARE_NAME.fullmatch(text):
        is_call = tools.has_similar(text) if tools else not body.startswith(" ")
        if is_call:
            return ParsedBody([FoundCall(text, "{}")])
    below_name = text.partition("\n")[2].lstrip()
    if below_name.startswith("{"):
        return _read_named_json(text)
    tag = _CHILD.match(text)
    if tag is None or not text.endswith(f"</{tag.group(1)}>"):
        return None
    tool = tag.group(1)
    names = "|".join(map(re.escape, tools.parameters(tool))) or _TAG
    named = _children(rf"<(?P<tool>{re.escape(tool)})>", rf"</{re.escape(tool)}>", names)
    return read_calls(text, named, BodyEnding.CLOSED, tools)


def _read_named_json(text: str) -> ParsedBody | None:
    """Read a name with a JSON object below it; the end of the object is the end of the call."""
    name, _, below = text.partition("\n")
    if not _BARE_NAME.fullmatch(name.strip()) or not below.lstrip().startswith("{"):
        return None
    decoded = lenient_json.decode_leniently(below)
    if decoded is None or not isinstance(decoded[0], dict):
        return None
    values, repairs = decoded
    arguments = lenient_json.encode_arguments(values)
    return ParsedBody([FoundCall(name.strip(), arguments, tuple(repairs))])


# ---- writing


def _decode_arguments(arguments: str) -> dict[str, Any] | None:
    decoded = lenient_json.decode_strictly(arguments)
    return lenient_json.as_object(decoded[0]) if decoded else None


def _render_value(value: Any) -> str:
    return value if isinstance(value, str) else lenient_json.encode(value)


def render_json_arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON in which no mark can stand."""
    arguments = call.arguments
    if _decode_arguments(arguments) is None:
        arguments = lenient_json.encode(arguments)
    return arguments.replace("<", "\\u003c")


def render_call(call: ToolCall, grammar: Grammar, opens: str, parameter: str, closes: str) -> str:
    """Write a call by three templates.

    Arguments that would not be read back as they are stand in it as one JSON object.

    Args:
        call: The call.
        grammar: The kind of mark-up that reads it back.
        opens: Opens the call; has `{name}`.
        parameter: A value; has `{key}` and `{value}`, and may have `{text}` for whether it is text.
        closes: Closes the call.
    """
    values = _decode_arguments(call.arguments)
    head = opens.format(name=call.tool)
    if values is not None:
        written = head + "\n"
        for key, value in values.items():
            text = "true" if isinstance(value, str) else "false"
            written += parameter.format(key=key, value=_render_value(value), text=text)
        written += closes
        if _read_back(written, grammar) == [(call.tool, values)]:
            return written
    return f"{head}\n{render_json_arguments(call)}\n{closes}"


def _read_back(written: str, grammar: Grammar) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the tools and the arguments of the calls that a text is read as."""
    parsed = read_calls(written, grammar, BodyEnding.CLOSED, OfferedTools())
    if parsed is None:
        return []
    return [(call.tool, _decode_arguments(call.arguments)) for call in parsed.calls]


def render_functions(calls: Sequence[ToolCall]) -> str:
    """Write calls as Qwen3-Coder does."""
    parameter = "<parameter={key}>\n{value}\n</parameter>\n"
    return _render_functions(calls, "tool_call", _functions(padded=True), parameter)


def render_seed(calls: Sequence[ToolCall]) -> str:
    """Write calls as Seed does, whose values have no line breaks around them."""
    parameter = "<parameter={key}>{value}</parameter>\n"
    return _render_functions(calls, "seed:tool_call", _functions(padded=False), parameter)


def _render_functions(calls: Sequence[ToolCall], tag: str, grammar: Grammar, parameter: str) -> str:
    written = [
        render_call(call, grammar, "<function={name}>", parameter, "</function>") for call in calls
    ]
    return "\n".join(f"<{tag}>\n{one}\n</{tag}>" for one in written)


def render_invokes(
    calls: Sequence[ToolCall], wrapper: str, prefix: str = "", attributes: str = ""
) -> str:
    """Write calls as invocations in one wrapper."""
    grammar = _invocations(prefix)
    parameter = f'<{prefix}parameter name="{{key}}"{attributes}>{{value}}</{prefix}parameter>\n'
    opens = f'<{prefix}invoke name="{{name}}">'
    closes = f"</{prefix}invoke>"
    written = [render_call(call, grammar, opens, parameter, closes) for call in calls]
    return f"<{wrapper}>\n" + "\n".join(written) + f"\n</{wrapper}>"


def render_dsml(calls: Sequence[ToolCall]) -> str:
    """Write calls as DeepSeek V3.2 does: `string="true"` values are raw text, the others JSON."""
    bar = "｜DSML｜"
    return render_invokes(calls, f"{bar}function_calls", bar, ' string="{text}"')


def render_pairs(calls: Sequence[ToolCall]) -> str:
    """Write calls as GLM does."""
    parameter = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
    return "\n".join(
        f"<tool_call>{render_call(call, _pairs(''), '{name}', parameter, '')}</tool_call>"
        for call in calls
    )


def render_xtml(calls: Sequence[ToolCall]) -> str:
    """Write calls as Kimi K3 does."""
    written = [_render_xtml(call, index + 1) for index, call in enumerate(calls)]
    return "<|open|>tools<|sep|>" + "".join(written) + "<|close|>tools<|sep|>"


def _render_xtml(call: ToolCall, index: int) -> str:
    values = _decode_arguments(call.arguments)
    opens = f'<|open|>call tool="{call.tool}" index="{index}"<|sep|>'
    closes = "<|close|>call<|sep|>"
    body = "".join(_render_xtml_argument(key, value) for key, value in (values or {}).items())
    read_back = [arguments for _, arguments in _read_back(opens + body + closes, XTML)]
    if read_back != [values]:
        body = f'<|open|>json type="object"<|sep|>{render_json_arguments(call)}<|close|>json<|sep|>'
    return opens + body + closes


def _render_xtml_argument(key: str, value: Any) -> str:
    json_type = json_type_of(value).replace("integer", "number")
    name = key.replace("&", "&amp;").replace('"', "&quot;")
    return (
        f'<|open|>argument key="{name}" type="{json_type}"<|sep|>'
        f"{_render_value(value)}<|close|>argument<|sep|>"
    )
