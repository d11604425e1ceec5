"""Read a reply: tell prose, reasoning and calls apart while the text arrives.

Decisions depend on the text alone: what comes out is the same however the stream was cut. Text is
read once; a reader holds back only what may be the beginning of a mark (at most `MAX_MARK_LENGTH`
characters) and whole regions whose end decides what they are.

What this cannot see: an example of a call in plain text, marked as calls are marked, is read as a
call. In back-ticks, or in fenced blocks beside others, it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache

from ferrule.core.calls import ToolCall
from ferrule.core.value_class import frozen

from . import fences, gemma, harmony, parameter_tags, reasoning, section_tokens, tagged_calls
from .dialect import MAX_MARK_LENGTH, CallForm, Dialect, FoundCall, mark_unreadable
from .offered_tools import OfferedTools
from .regions import (
    BareRegion,
    DoubtfulRegion,
    FencedBlock,
    HeadlessReasoningRegion,
    Item,
    MarkedRegion,
    Omission,
    Problem,
    ReasoningRegion,
    ReasoningText,
    Region,
    TurnEnd,
)
from .registry import ALL_DIALECTS
from .visible_text import Prose

_MOST_LITERALS = 64
"""Regions that turned out to be prose, after which all that follows is taken for prose."""

_MOST_BARE = 8
"""The same for values without marks."""

_MOST_FORCED = 16
"""Calls without a whole end, after which a call ends at its first closing mark.

These three limits keep the work linear.
"""

_CHUNK = 2048
"""Characters that are looked at in one go."""

_LINE = 240
"""Characters in which an inline code span or a fence's opening line must end."""

_TURN_ENDS = (
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end|return|call|eot|END_OF_TURN_TOKEN"
    r"|im_start)\|>"
    r"|<｜end▁of▁sentence｜>|<end_of_turn>|<turn\|>|<\|tool_response>|<\|end_of_msg\|>"
)
_NOISE = (
    r"<\|(?:START|END)_(?:RESPONSE|TEXT)\|>|\]<\]minimax\[>\[|"
    r"<\|(?:open|close)\|>(?:response|message)<\|sep\|>|"
    r"<\|close\|>(?:tools|call|argument|json)<\|sep\|>|"
    r"<\|CHATBOT_TOKEN\|>|<\|START_OF_TURN_TOKEN\|>|>>>all\n"
)
_STRAY = (
    r"\s*(?:</(?:antml:|minimax:|seed:|[|｜]{1,2} ?DSML ?[|｜]{1,2} ?)?"
    r"(?:tool_calls?|function_calls?|function|calls|TOOLCALL)>|<\|/tool_calls?\|>|</s>"
    r"|<[|｜]tool(?:[▁_ ]|\\_)calls?(?:(?:[▁_ ]|\\_)section)?(?:[▁_ ]|\\_)end[|｜]>"
    r"|<\|END_ACTION\|>)"
)
_STRAY_MORE = re.compile(r"\s*(?:<[^<>\n]{0,48})?\Z")
_STRAY_MARK = re.compile(_STRAY)

_PARTIAL = re.compile(
    r"(?:<[^<>\n]{0,95}|\[[/A-Z_]{0,13}|◁[/a-z]{0,7}|`+"
    r"|^[ \t]{0,8}(?:\{|~{0,20})|>{1,3}[\w.:-]{0,64}\n?"
    r"|\](?:<(?:\](?:m[a-z]*(?:\[>?)?)?)?)?|f(?:u(?:n(?:c(?:t(?:o(?:o(?:ls?)?)?)?)?)?)?)?"
    rf"|{parameter_tags.CALL_END_BEGINS}"
    r"|<\|(?:action_start|open|close|start)\|>\s?[a-z]{0,10}(?:<[^<>\n]{0,20})?|<\|channel>[a-z]{0,7})\Z",
    re.MULTILINE,
)
"""Matches the end of a text that may be the beginning of a mark."""


@frozen
class Reading:
    """What a reply says: its text, its calls (without ids), its reasoning, and its problems.

    `dialect` names the form of the first call; it is empty if there is none.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    problems: tuple[str, ...] = ()
    dialect: str = ""


_TAILS = re.compile(f"{parameter_tags.CALL_END}|{gemma.CALL_END}")
_MARKS_OF_CALLS = re.compile(
    f"{parameter_tags.CALL_END}|{gemma.CALL_END}|{parameter_tags.VALUE_MARK}|{gemma.QUOTE}"
)
_BETWEEN = re.compile(
    rf"\s*(?:{tagged_calls.BETWEEN_CALLS}|{parameter_tags.BETWEEN_CALLS}|{section_tokens.BETWEEN_CALLS}|{gemma.BETWEEN_CALLS})?\s*"
)
"""Matches what a family writes between two calls whose values are raw text."""


@cache
def _marks(forms: tuple[CallForm, ...], fenced: bool) -> re.Pattern[str]:
    """Return a pattern of everything that may open a region.

    Its alternatives are named groups: `form3`, `think`, `tick` and so on.
    """
    parts = [f"(?P<form{index}>{form.opens})" for index, form in enumerate(forms)]
    parts += [
        f"(?P<tail>{parameter_tags.CALL_END})",
        f"(?P<think>{reasoning.OPENING_TAGS})",
        f"(?P<lone>{reasoning.LONE_CLOSING_TAGS})",
        f"(?P<header>{harmony.HEADER})",
        f"(?P<turn>{_TURN_ENDS})",
        f"(?P<noise>{_NOISE})",
        r"(?P<bare>^[ \t]{0,8}(?=\{[\"'\s]))",
        r"(?P<tick>`+)",
    ]
    if fenced:
        parts.append(r"(?P<tilde>^[ \t]{0,8}~{3,20})")
    return re.compile("|".join(parts), re.MULTILINE)


class ReplyReader:
    """Takes a reply in pieces of any size and gives out prose as soon as it is certain.

    What `feed` gave out is the beginning of `Reading.text`, except when a closing tag shows that
    all of it was reasoning.
    """

    def __init__(
        self,
        dialects: Sequence[Dialect] | None = None,
        *,
        tools: Collection[str] = (),
        fenced: bool = True,
        marked: bool = False,
        thinking: bool = False,
    ) -> None:
        """Set up a reader for one reply.

        Args:
            dialects: The dialects to understand; all of them if None.
            tools: The names of the tools on offer, or a mapping of names to schemas. With schemas
                the types of values that are written as text are known. Forms that other text may
                have by chance count only for these names.
            fenced: Whether fenced blocks may be calls; otherwise they are text.
            marked: Whether only calls between marks count; then fenced and bare ones are text.
            thinking: Whether the reply starts inside reasoning. Nothing is given out until it ends.
        """
        self._dialects = dialects = ALL_DIALECTS if dialects is None else dialects
        self._forms = tuple(dict.fromkeys(form for dialect in dialects for form in dialect.forms))
        self._tools = OfferedTools(tools)
        self._mark = _marks(self._forms, fenced)
        self._open_by: dict[str, Callable[[str, str, bool], bool]] = {
            "tail": self._open_tail,
            "think": self._open_think,
            "lone": self._open_lone,
            "header": self._open_header,
            "turn": self._open_turn,
            "noise": self._open_noise,
            "bare": self._open_bare,
            "tick": self._open_tick,
            "tilde": self._open_tilde,
        }
        self.remainder = ""
        """The text that `finish` added to what `feed` had given out."""
        self._pieces: list[str] = []
        self._fed = 0
        self._rest = ""
        self._backlog = ""
        self._read_on = 0
        self._last = "\n"
        self._line_blank = True
        self._literals = 0
        self._forced = 0
        self._fences = fenced
        self._set_aside: list[FoundCall] = []
        self._doubtful = False
        self._harmony = False
        self._begun = False
        self._mentioned: set[str] = set()
        self._thought = False
        self._thought_until = 0
        self._cut = False
        self._marked = marked or not self._forms
        self._region: Region | None = HeadlessReasoningRegion() if thinking else None
        self._form_name = ""
        self._clear()

    def _clear(self) -> None:
        self._prose = Prose()
        self._calls: list[FoundCall] = []
        self._thoughts: list[str] = []
        self._problems: list[str] = []
        self._waiting: list[tuple[Item, str]] = []
        self._all_fences_call = True
        self._after_call = False
        self._head = True
        self._dialect = ""

    # ---- for callers

    def feed(self, piece: str) -> str:
        """Take more of the reply. Return the text that has become certain."""
        self._pieces.append(piece)
        self._fed += len(piece)
        self._backlog += piece
        self._run(end=False)
        return self._prose.take_new_text()

    def finish(self, *, cut: bool = False) -> Reading:
        """Return the reading of the whole reply. Call this once.

        `cut` says that the model was stopped at its output limit.
        """
        self._cut = cut
        self._run(end=True)
        self._settle_waiting()
        self._refuse_doubtful_calls()
        if cut:
            self._calls = [
                call
                if call.arguments_if_cut is None
                else FoundCall(call.tool, call.arguments_if_cut, cut=True)
                for call in self._calls
            ]
        text = self._prose.finish()
        self.remainder = self._prose.take_new_text()
        return Reading(
            text,
            tuple(ToolCall("", call.tool, call.arguments) for call in self._calls),
            "\n\n".join(thought for thought in self._thoughts if thought),
            tuple(self._all_problems()),
            self._dialect,
        )

    def _all_problems(self) -> list[str]:
        problems = [*self._problems]
        for call in self._calls:
            problems += [
                f"repaired: {repair} in the call to `{call.tool}`" for repair in call.repairs
            ]
            if call.cut:
                problems.append(f"the call to `{call.tool}` was cut off")
        if self._cut and not any(call.cut for call in self._calls):
            problems.append("the reply was cut at the model's output limit")
        return problems

    def _refuse_doubtful_calls(self) -> None:
        """Refuse all calls if a value of one of them may go on after what was taken for its end.

        Raw values have no escapes. What a reply holds besides calls may belong to such a value, and
        where the reply was cut, what is missing could have shown that a call did not end where it
        seemed to.
        """
        calls = (*self._set_aside, *self._calls)
        is_raw = any(call.source and not call.escaped for call in calls)
        if not self._doubtful and not (is_raw and (self._cut or self._is_doubtful_around(calls))):
            return
        self._problems.append(
            "a value of a call may go on after its closing mark: none of the calls was made"
        )
        # What was taken for reasoning may have been a value: the model is told of these calls, too.
        self._calls = [
            FoundCall(call.tool, mark_unreadable(call.source or call.arguments), cut=call.cut)
            for call in calls
        ]

    def _is_doubtful_around(self, calls: Sequence[FoundCall]) -> bool:
        """Return whether what stands around calls may belong to a value of one of them.

        It may not if the calls follow each other as their family writes them, no call ends before
        them, and no mark of a call or a value stands behind them.
        """
        if len(calls) > 1 and any(call.alone for call in calls):
            return True
        reply = "".join(self._pieces)
        # Calls in reasoning before the first call are thoughts about calls.
        at = self._thought_until
        for index, call in enumerate(calls):
            start = reply.find(call.source, at) if call.source else -1
            if start < 0:
                return True
            before = reply[at:start]
            if index == 0 and _TAILS.search(before):
                return True
            if index > 0 and _BETWEEN.fullmatch(before) is None:
                return True
            at = start + len(call.source)
        return _MARKS_OF_CALLS.search(reply, at) is not None

    def expect_separate_reasoning(self) -> None:
        """Note that reasoning arrives beside the text: then the text does not begin inside it."""
        if isinstance(self._region, HeadlessReasoningRegion) and not self._fed:
            self._region = None

    @property
    def held_back(self) -> str:
        """Text that is looked at again with the next piece: at most a mark or a line's start."""
        return self._rest

    # ---- the walk through the text

    def _run(self, *, end: bool) -> None:
        while True:
            if self._step(end=False):
                continue
            if self._read_on < len(self._backlog):
                self._rest += self._backlog[self._read_on : self._read_on + _CHUNK]
                self._read_on += _CHUNK
            elif not end or not self._step(end=True):
                break
        if not end:
            self._backlog, self._read_on = "", 0

    def _step(self, *, end: bool) -> bool:
        """Make one decision. Return False if none can be made without more text."""
        moved = self._scan_prose(end) if self._region is None else self._feed_region(end)
        if len(self._rest) > 2 * _CHUNK:
            # Regions hand back long texts; copying them again for every mark in them would not be
            # linear.
            self._backlog = self._rest[_CHUNK:] + self._backlog[self._read_on :]
            self._rest = self._rest[:_CHUNK]
            self._read_on = 0
        return moved

    def _feed_region(self, end: bool) -> bool:
        assert self._region is not None
        piece = self._rest
        self._rest = ""
        outcome = self._region.feed(piece, end, self._cut)
        if outcome is None:
            return False
        self._doubtful = self._doubtful or outcome.doubtful
        self._literals += outcome.literal
        self._forced += outcome.forced
        for item in outcome.items:
            self._take(item)
            if isinstance(item, str):
                self._note_text(item)
        self._fences = self._fences and outcome.fences
        if outcome.done:
            was_reasoning = isinstance(self._region, ReasoningRegion | HeadlessReasoningRegion)
            self._region = DoubtfulRegion() if outcome.doubtful else None
            self._rest = outcome.rest
            if was_reasoning and not self._calls:
                self._thought_until = self._position()
        return outcome.done

    def _position(self) -> int:
        """Return the offset in the reply of what is looked at next."""
        return self._fed - len(self._rest) - max(0, len(self._backlog) - self._read_on)

    def _scan_prose(self, end: bool) -> bool:
        """Take prose up to the next mark.

        Return whether something opened, or there is more to look at.
        """
        if self._after_call and not self._skip_strays(end):
            return False
        if self._head and not self._begun and not self._harmony:
            moved = self._open_header_of_prompt(end)
            if moved is not None:
                return moved
        if self._head and self._open_bare_at_head():
            return True
        text = self._last + self._rest
        match = self._mark.search(text, 1)
        certain = len(text) if end else self._certain_length(text)
        if match is None:
            keep = min(len(text), certain)
            self._say(text[1:keep], text[keep:])
            return False
        # A mark may also be a part of a longer one that began before it, or with it, and is not
        # complete yet.
        if not end and (match.end() >= len(text) or certain <= match.start()):
            keep = min(match.start(), certain)
            self._say(text[1:keep], text[keep:])
            return False
        self._say(text[1 : match.start()], text[match.start() :])
        kind = match.lastgroup or ""
        rest = text[match.end() :]
        if kind.startswith("form"):
            return self._open_form(self._forms[int(kind[4:])], match.group(), rest)
        return self._open_by[kind](match.group(), rest, end)

    def _open_header_of_prompt(self, end: bool) -> bool | None:
        """Harmony: open the reply's first message if the prompt ended within its header.

        None if it did not; else like `_scan_prose`.
        """
        role = harmony.REST_OF_HEADER.match(self._rest)
        if role:
            self._begun = "<|message|>" in self._rest
            return self._open_header(role.group(), self._rest[role.end() :], end)
        if not end and self._rest and harmony.REST_OF_HEADER_BEGINS.match(self._rest):
            return False
        self._begun = bool(self._rest)
        return None

    @staticmethod
    def _certain_length(text: str) -> int:
        """Return how much of a text is prose whatever follows."""
        partial = _PARTIAL.search(text, max(1, len(text) - MAX_MARK_LENGTH))
        return partial.start() if partial else len(text)

    def _skip_strays(self, end: bool) -> bool:
        """Skip closing tags that nothing opened, right after a call.

        Return False if more text is needed.
        """
        while stray := _STRAY_MARK.match(self._rest):
            self._rest = self._rest[stray.end() :]
        if not end and _STRAY_MORE.match(self._rest):
            return False
        self._after_call = False
        return True

    def _open_bare_at_head(self) -> bool:
        """Open a region if the reply begins with what may be a value without marks."""
        if self._marked:
            return False
        space = len(self._rest) - len(self._rest.lstrip())
        first = self._rest[space : space + 1]
        second = self._rest[space + 1 : space + 2]
        if not first:
            return False
        may_be_name = bool(self._tools) and (first.isalpha() or first == "_")
        if first not in "{[" and not may_be_name:
            return False
        if first == "[" and (not second or second.isupper()):
            return False
        self._say(self._rest[:space], self._rest[space:])
        self._head = False
        return self._begin(BareRegion(self._tools, head=True), self._rest, "bare")

    def _say(self, text: str, rest: str) -> None:
        """Take prose, and note what is left to look at."""
        if text:
            self._take(text)
            self._note_text(text)
        self._rest = rest

    def _note_text(self, text: str) -> None:
        """Remember how the text before the next mark ends."""
        newline = text.rfind("\n")
        self._last = text[-1:] or self._last
        self._line_blank = (newline >= 0 or self._line_blank) and not text[newline + 1 :].strip()
        self._head = self._head and not text.strip()

    # ---- what marks open: each of these returns what `_scan_prose` does

    def _begin(self, region: Region, rest: str, name: str = "") -> bool:
        self._region = region
        self._rest = rest
        self._form_name = name
        self._line_blank = True
        self._last = ">"
        return True

    def _take_literally(self, mark: str, rest: str) -> bool:
        self._say(mark, rest)
        return bool(rest)

    def _wait(self, text: str) -> bool:
        self._rest = text
        return False

    def _open_form(self, form: CallForm, mark: str, rest: str) -> bool:
        # Within a line the mark of an empty call only mentions it.
        is_mentioned = mark.endswith("/>") and not self._line_blank
        if is_mentioned or self._literals >= _MOST_LITERALS:
            return self._take_literally(mark, rest)
        region = MarkedRegion(
            form, mark, self._tools, hasty=self._forced >= _MOST_FORCED, lone=self._line_blank
        )
        return self._begin(region, rest, form.name)

    def _open_tail(self, mark: str, rest: str, end: bool) -> bool:
        """Drop the end of a call where none is open."""
        self._rest = rest
        self._take(Omission())
        return True

    def _open_think(self, mark: str, rest: str, end: bool) -> bool:
        if not self._line_blank or self._literals >= _MOST_LITERALS:
            # Within a line a tag is only mentioned, and so is the tag that closes it.
            self._mentioned.add(reasoning.closing_tag(mark))
            return self._take_literally(mark, rest)
        head = self._prose.is_empty and not self._calls and not self._waiting
        return self._begin(ReasoningRegion(mark, head=head), rest)

    def _open_lone(self, mark: str, rest: str, end: bool) -> bool:
        """Take all so far for reasoning, as the opening tag of this closing one is missing."""
        if mark in self._mentioned:
            self._mentioned.discard(mark)
            return self._take_literally(mark, rest)
        self._rest = rest
        if self._thought:
            self._take(Omission())
            return True
        before = "".join(self._pieces)[: self._position() - len(mark)]
        self._set_aside += self._calls
        self._clear()
        self._take(ReasoningText(before.strip()))
        return True

    def _open_header(self, mark: str, rest: str, end: bool) -> bool:
        """Harmony: open a message. Its header says who it is for."""
        stop = rest.find("<|message|>")
        if stop < 0 and not end and len(rest) <= _LINE + len("<|message|>"):
            return self._wait(mark + rest)
        if stop < 0 or stop > _LINE:
            return self._take_literally(mark, rest)
        end_of_header = stop + len("<|message|>")
        header = rest[:end_of_header]
        rest = rest[end_of_header:]
        channel, tool = harmony.parse_header(mark + header)
        # In a reply of this form a recipient makes a call, and nothing else does.
        self._harmony = self._marked = True
        self._mark = _marks((), False)
        if tool:
            region = MarkedRegion(
                harmony.CALL, f"{mark} to={tool}", self._tools, said=mark + header
            )
            return self._begin(region, rest, "harmony")
        self._take(Omission())
        if channel == "analysis":
            return self._begin(ReasoningRegion(mark, head=True, closes=harmony.MESSAGE_END), rest)
        self._rest = rest
        self._last = "\n"
        self._line_blank = True
        return True

    def _open_turn(self, mark: str, rest: str, end: bool) -> bool:
        self._rest = rest
        self._take(TurnEnd(mark))
        return True

    def _open_noise(self, mark: str, rest: str, end: bool) -> bool:
        self._rest = rest
        self._take(Omission())
        return True

    def _open_bare(self, mark: str, rest: str, end: bool) -> bool:
        if self._marked or self._literals >= _MOST_BARE:
            return self._take_literally(mark + rest[:1], rest[1:])
        return self._begin(BareRegion(self._tools, head=False), mark + rest, "bare")

    def _open_tick(self, mark: str, rest: str, end: bool) -> bool:
        """Open what a run of back-ticks begins: a fenced block, code in a line, or nothing."""
        line, newline, _ = rest[:_LINE].partition("\n")
        is_line_known = bool(newline) or end or len(rest) > _LINE
        if len(mark) >= 3 and self._fences:
            if not is_line_known:
                return self._wait(mark + rest)
            if (newline or len(rest) <= _LINE) and self._open_fence(mark, line, rest):
                return True
        close = re.search(rf"(?<!`){mark}(?!`)", line)
        if close is None:
            if not is_line_known:
                return self._wait(mark + rest)
            return self._take_literally(mark, rest)
        if close.end() == len(rest) and not end:
            return self._wait(mark + rest)
        return self._take_literally(mark + rest[: close.end()], rest[close.end() :])

    def _open_fence(self, mark: str, line: str, rest: str) -> bool:
        """Open a fenced block if the marks and the line after them begin one, or are one."""
        if mark in line:
            block = None
            if not self._marked:
                block = fences.read_inline_block(mark, line, self._tools, self._read_nested)
            if block is None:
                return False
            self._take(block)
            self._rest = rest[len(line) :]
            self._head = False
            return True
        if not self._line_blank and not re.fullmatch(r"\w*[ \t\r]*", line):
            return False
        return self._begin_fence(mark, rest[: len(line) + 1], rest)

    def _begin_fence(self, mark: str, opening: str, rest: str) -> bool:
        self._head = False
        block = fences.FenceRegion(
            mark, opening, self._tools, self._read_nested, plain=self._marked
        )
        return self._begin(block, rest[len(opening) :], "fenced")

    def _open_tilde(self, mark: str, rest: str, end: bool) -> bool:
        newline = rest.find("\n", 0, _LINE)
        if newline < 0 and not end and len(rest) <= _LINE:
            return self._wait(mark + rest)
        if newline < 0 or not self._fences:
            return self._take_literally(mark, rest)
        bare = mark.lstrip()
        self._say(mark[: -len(bare)], rest)
        return self._begin_fence(bare, rest[: newline + 1], rest)

    def _read_nested(self, text: str) -> tuple[FoundCall, ...]:
        """Return the marked calls that a text consists of; none if anything else is in it."""
        inner = ReplyReader(self._dialects, tools=self._tools.given, fenced=False)
        inner.feed(text)
        reading = inner.finish()
        if reading.text.strip() or reading.reasoning or reading.dialect == "bare":
            return ()
        return tuple(inner._calls)

    # ---- what was found

    def _take(self, item: Item) -> None:
        """Take an item, or let it wait: whether blocks are calls depends on all the blocks."""
        if isinstance(item, FencedBlock):
            if item.calls is not None and self._all_fences_call:
                self._waiting.append((item, "fenced"))
                return
            if item.calls is None:
                self._release_fences()
            self._settle(item.raw, "")
        elif self._waiting:
            self._waiting.append((item, self._form_name))
        else:
            self._settle(item, self._form_name)

    def _settle(self, item: Item, name: str) -> None:
        match item:
            case str():
                self._prose.add_text(item)
            case FoundCall():
                self._dialect = self._dialect or name
                self._calls.append(item)
                self._prose.add_break()
                self._after_call, self._head = True, False
            case ReasoningText(text):
                self._thought = True
                self._thoughts.append(text)
                self._prose.add_break()
            case Problem(text):
                self._problems.append(text)
            case Omission():
                self._prose.add_break()
            case TurnEnd(token):
                self._prose.add_end_token(token)
            case FencedBlock():
                for call in item.calls or ():
                    self._settle(call, "fenced")

    def _release_fences(self) -> None:
        """Take all blocks for text, as one of them is no call."""
        self._all_fences_call = False
        waiting = self._waiting
        self._waiting = []
        for item, name in waiting:
            self._settle(item.raw if isinstance(item, FencedBlock) else item, name)

    def _settle_waiting(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for item, name in waiting:
            self._settle(item, name)
