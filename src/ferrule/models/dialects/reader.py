"""Reads a reply: prose, reasoning and calls, told apart while the text arrives.

Decisions depend on the text alone: what comes out is the same however the stream was cut. Text is
read once; a reader holds back only what may be the beginning of a mark (at most `LONGEST`
characters) and whole regions whose end decides what they are.

What a reply cannot tell: an example of a call in plain text, marked as calls are marked, is read as
a call. In back-ticks, or in fenced blocks beside others, it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache

from ferrule.core.calls import Call
from ferrule.core.frozen import frozen

from . import fences, gemma, harmony, markup, reasoning, section_tokens, tagged_calls
from .dialect import LONGEST, Dialect, Form, Found, Tools, unreadable
from .prose import Prose
from .regions import (
    Bare,
    Candidate,
    Doubted,
    Gap,
    Headless,
    Item,
    Marked,
    Problem,
    Region,
    Thinking,
    Thought,
    TurnEnd,
)
from .registry import ALL

_MOST_LITERALS = 64
"""Regions that turned out to be prose, after which all that follows is taken for prose;
`_MOST_BARE` for values without marks.
"""
_MOST_BARE = 8
_MOST_FORCED = 16
"""Calls without a whole end, after which a call ends at its first closing mark: all of this keeps
work linear.
"""
_CHUNK = 2048
_LINE = 240
"""Characters in which an inline code span or a fence's opening line must end."""

_TURN_ENDS = (
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end|return|call|eot|END_OF_TURN_TOKEN|im_start)\|>"
    r"|<｜end▁of▁sentence｜>|<end_of_turn>|<turn\|>|<\|tool_response>|<\|end_of_msg\|>"
)
_NOISE = (
    r"<\|(?:START|END)_(?:RESPONSE|TEXT)\|>|\]<\]minimax\[>\[|"
    r"<\|(?:open|close)\|>(?:response|message)<\|sep\|>|<\|close\|>(?:tools|call|argument|json)<\|sep\|>|<\|CHATBOT_TOKEN\|>|<\|START_OF_TURN_TOKEN\|>|>>>all\n"
)
_STRAY = (
    r"\s*(?:</(?:antml:|minimax:|seed:|[|｜]{1,2} ?DSML ?[|｜]{1,2} ?)?"
    r"(?:tool_calls?|function_calls?|function|calls|TOOLCALL)>|<\|/tool_calls?\|>|</s>"
    r"|<[|｜]tool(?:[▁_ ]|\\_)calls?(?:(?:[▁_ ]|\\_)section)?(?:[▁_ ]|\\_)end[|｜]>|<\|END_ACTION\|>)"
)
_STRAY_MORE = re.compile(r"\s*(?:<[^<>\n]{0,48})?\Z")
_STRAY_MARK = re.compile(_STRAY)

_PARTIAL = re.compile(
    r"(?:<[^<>\n]{0,95}|\[[/A-Z_]{0,13}|◁[/a-z]{0,7}|`+|^[ "
    r"\t]{0,8}(?:\{|~{0,20})|>{1,3}[\w.:-]{0,64}\n?"
    r"|\](?:<(?:\](?:m[a-z]*(?:\[>?)?)?)?)?|f(?:u(?:n(?:c(?:t(?:o(?:o(?:ls?)?)?)?)?)?)?)?"
    rf"|{markup.TAIL_BEGINS}"
    r"|<\|(?:action_start|open|close|start)\|>\s?[a-z]{0,10}(?:<[^<>\n]{0,20})?|<\|channel>[a-z]{0,7})\Z",
    re.MULTILINE,
)
"""The end of a text that may be the beginning of a mark."""


@frozen
class Reading:
    """What a reply says: its text, its calls (without ids), its reasoning, and what was odd about
    it.

    `dialect` names the form that the first call had; it is empty if there is none.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    problems: tuple[str, ...] = ()
    dialect: str = ""


_TAILS = re.compile(f"{markup.TAIL}|{gemma.TAIL}")
_MARKS_OF_CALLS = re.compile(f"{markup.TAIL}|{gemma.TAIL}|{markup.VALUE_MARK}|{gemma.QUOTE}")
_BETWEEN = re.compile(
    rf"\s*(?:{tagged_calls.BETWEEN}|{markup.BETWEEN}|{section_tokens.BETWEEN}|{gemma.BETWEEN})?\s*"
)
"""What a family writes between two calls whose values are raw text."""


@cache
def _marks(forms: tuple[Form, ...], fenced: bool) -> re.Pattern[str]:
    """Everything that may open a region. Alternatives are named: `form3`, `think`, `tick` …"""
    parts = [f"(?P<form{index}>{form.opens})" for index, form in enumerate(forms)]
    parts += [
        f"(?P<tail>{markup.TAIL})",
        f"(?P<think>{reasoning.OPENS})",
        f"(?P<lone>{reasoning.LONE})",
        f"(?P<header>{harmony.HEADER})",
        f"(?P<turn>{_TURN_ENDS})",
        f"(?P<noise>{_NOISE})",
        r"(?P<bare>^[ \t]{0,8}(?=\{[\"'\s]))",
        r"(?P<tick>`+)",
    ]
    if fenced:
        parts.append(r"(?P<tilde>^[ \t]{0,8}~{3,20})")
    return re.compile("|".join(parts), re.MULTILINE)


class Reader:
    """Takes a reply in pieces of any size and gives out prose as soon as it is certain.

    `dialects`: the ones to understand (all of them if None). `tools` names what is on offer, or
    maps names to their schemas: then the types of values written as text are known, and forms that
    other text may have by chance count only for these names. `fenced` False takes fenced blocks for
    text.
    `marked`: only calls between marks count; fenced and bare ones are text.
    `thinking`: the reply starts inside reasoning; nothing is given out until that ends.

    What `feed` gave out is the beginning of `Reading.text`, except when a closing tag
    shows that all of it was reasoning.
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
        self._dialects = dialects = ALL if dialects is None else dialects
        self._forms = tuple(dict.fromkeys(form for dialect in dialects for form in dialect.forms))
        self._tools = Tools(tools)
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
        """What `finish` added to the text that `feed` had given out."""
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
        self._set_aside: list[Found] = []
        self._doubtful = False
        self._harmony = False
        self._begun = False
        self._mentioned: set[str] = set()
        self._thought = False
        self._thought_until = 0
        self._cut = False
        self._marked = marked or not self._forms
        self._region: Region | None = Headless() if thinking else None
        self._form_name = ""
        self._clear()

    def _clear(self) -> None:
        self._prose = Prose()
        self._calls: list[Found] = []
        self._thoughts: list[str] = []
        self._problems: list[str] = []
        self._waiting: list[tuple[Item, str]] = []
        self._all_fences_call = True
        self._after_call = False
        self._head = True
        self._dialect = ""

    # ---- outside

    def feed(self, piece: str) -> str:
        """More of the reply. Returns the text that is certain by now and was not returned
        before.
        """
        self._pieces.append(piece)
        self._fed += len(piece)
        self._backlog += piece
        self._run(end=False)
        return self._prose.take()

    def finish(self, *, cut: bool = False) -> Reading:
        """The whole reply. `cut`: the model was stopped at its output limit. Call this once."""
        self._cut = cut
        self._run(end=True)
        self._settle_fences()
        self._doubt_calls()
        if cut:
            self._calls = [
                call if call.unmarked is None else Found(call.tool, call.unmarked, cut=True)
                for call in self._calls
            ]
        text = self._prose.finish()
        self.remainder = self._prose.take()
        problems = [*self._problems]
        for call in self._calls:
            problems += [
                f"repaired: {repair} in the call to `{call.tool}`" for repair in call.repairs
            ]
            if call.cut:
                problems.append(f"the call to `{call.tool}` was cut off")
        if cut and not any(call.cut for call in self._calls):
            problems.append("the reply was cut at the model's output limit")
        return Reading(
            text,
            tuple(Call("", call.tool, call.arguments) for call in self._calls),
            "\n\n".join(thought for thought in self._thoughts if thought),
            tuple(problems),
            self._dialect,
        )

    def _doubt_calls(self) -> None:
        """Refuse all calls where a value of one of them may go on after what was taken for its end.

        Values of raw forms have no escapes: what a reply holds besides calls may belong to such a
        value, and where the reply was cut, what is missing could have shown that a call did not end
        where it seemed to.
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
            Found(call.tool, unreadable(call.source or call.arguments), cut=call.cut)
            for call in calls
        ]

    def _is_doubtful_around(self, calls: Sequence[Found]) -> bool:
        """Whether what stands around calls may belong to a value of one of them.

        It may not if the calls follow each other as their family writes them, if no call ends
        before them and no mark of a call or a value stands behind them.
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
            if _BETWEEN.fullmatch(before) is None if index else _TAILS.search(before):
                return True
            at = start + len(call.source)
        return _MARKS_OF_CALLS.search(reply, at) is not None

    def reason_apart(self) -> None:
        """Reasoning arrives beside the text: then the text does not begin inside it."""
        if isinstance(self._region, Headless) and not self._fed:
            self._region = None

    @property
    def held(self) -> str:
        """What will be looked at again with the next piece: never more than a mark or a line's
        beginning.
        """
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
        """One decision. False: none can be made without more text."""
        moved = self._scan(end) if self._region is None else self._collect(end)
        if len(self._rest) > 2 * _CHUNK:
            # Regions hand back long texts; copying them again for every mark in them would not be
            # linear.
            self._backlog = self._rest[_CHUNK:] + self._backlog[self._read_on :]
            self._rest, self._read_on = self._rest[:_CHUNK], 0
        return moved

    def _collect(self, end: bool) -> bool:
        assert self._region is not None
        piece, self._rest = self._rest, ""
        outcome = self._region.feed(piece, end, self._cut)
        if outcome is None:
            return False
        self._doubtful = self._doubtful or outcome.doubtful
        self._literals += outcome.literal
        self._forced += outcome.forced
        for item in outcome.items:
            self._hear(item)
            if isinstance(item, str):
                self._pass(item)
        self._fences = self._fences and outcome.fences
        if outcome.done:
            thought = isinstance(self._region, Thinking | Headless)
            self._region = Doubted() if outcome.doubtful else None
            self._rest = outcome.rest
            if thought and not self._calls:
                self._thought_until = self._place()
        return outcome.done

    def _place(self) -> int:
        """The offset in the reply of what is looked at next."""
        return self._fed - len(self._rest) - max(0, len(self._backlog) - self._read_on)

    def _scan(self, end: bool) -> bool:
        """Prose up to the next mark. True: something opened, or there is more to look at."""
        if self._after_call and not self._skip_strays(end):
            return False
        if self._head and not self._begun and not self._harmony:
            begun = self._begins_in_header(end)
            if begun is not None:
                return begun
        if self._head and self._opens_bare():
            return True
        text = self._last + self._rest
        match = self._mark.search(text, 1)
        certain = len(text) if end else self._certain(text)
        keep = min(match.start() if match else len(text), certain)
        # A mark may also be a part of a longer one that began before it, or with it, and is not
        # complete yet.
        if match is None or (not end and (match.end() >= len(text) or certain <= match.start())):
            self._say(text[1:keep], text[keep:])
            return False
        self._say(text[1 : match.start()], text[match.start() :])
        kind, mark, rest = match.lastgroup or "", match.group(), text[match.end() :]
        if kind.startswith("form"):
            form = self._forms[int(kind[4:])]
            if mark.endswith("/>") and not self._line_blank:
                return self._literally(mark, rest)  # within a line it is a word about a call
            if self._literals >= _MOST_LITERALS:
                return self._literally(mark, rest)
            region = Marked(
                form, mark, self._tools, hasty=self._forced >= _MOST_FORCED, lone=self._line_blank
            )
            return self._begin(region, rest, form.name)
        return self._open_by[kind](mark, rest, end)

    def _begins_in_header(self, end: bool) -> bool | None:
        """Harmony: whether a prompt ended within the header of the reply's first message. None: it
        did not.
        """
        role = harmony.ROLE.match(self._rest)
        if role:
            self._begun = "<|message|>" in self._rest
            return self._open_header(role.group(), self._rest[role.end() :], end)
        if not end and self._rest and harmony.ROLE_BEGINS.match(self._rest):
            return False
        self._begun = bool(self._rest)
        return None

    @staticmethod
    def _certain(text: str) -> int:
        """How much of a text is prose whatever follows."""
        partial = _PARTIAL.search(text, max(1, len(text) - LONGEST))
        return partial.start() if partial else len(text)

    def _skip_strays(self, end: bool) -> bool:
        """Closing tags that nothing opened, right after a call. False: wait for more text."""
        while stray := _STRAY_MARK.match(self._rest):
            self._rest = self._rest[stray.end() :]
        if not end and _STRAY_MORE.match(self._rest):
            return False
        self._after_call = False
        return True

    def _opens_bare(self) -> bool:
        """Whether the reply begins with what may be a value without marks."""
        blank = len(self._rest) - len(self._rest.lstrip())
        start = self._rest[blank : blank + 1]
        named = bool(self._tools) and (start.isalpha() or start == "_")
        if self._marked:
            return False
        second = self._rest[blank + 1 : blank + 2]
        if (
            not start
            or not (start in "{[" or named)
            or (start == "[" and (not second or second.isupper()))
        ):
            return False
        self._say(self._rest[:blank], self._rest[blank:])
        self._head = False
        return self._begin(Bare(self._tools, head=True), self._rest, "bare")

    def _say(self, text: str, rest: str) -> None:
        """Prose, and what is left to look at."""
        if text:
            self._hear(text)
            self._pass(text)
        self._rest = rest

    def _pass(self, text: str) -> None:
        """Remember how the text before the next mark ends."""
        newline = text.rfind("\n")
        self._last = text[-1:] or self._last
        self._line_blank = (newline >= 0 or self._line_blank) and not text[newline + 1 :].strip()
        self._head = self._head and not text.strip()

    # ---- what marks open

    def _begin(self, region: Region, rest: str, name: str = "") -> bool:
        self._region, self._rest, self._form_name = region, rest, name
        self._line_blank, self._last = True, ">"
        return True

    def _literally(self, mark: str, rest: str) -> bool:
        self._say(mark, rest)
        return bool(rest)

    def _wait(self, text: str) -> bool:
        self._rest = text
        return False

    def _open_tail(self, mark: str, rest: str, end: bool) -> bool:
        """The end of a call where none is open."""
        self._rest = rest
        self._hear(Gap())
        return True

    def _open_think(self, mark: str, rest: str, end: bool) -> bool:
        if not self._line_blank or self._literals >= _MOST_LITERALS:
            # Within a line it is a word about a tag, and so is the tag that closes it.
            self._mentioned.add(reasoning.closing(mark))
            return self._literally(mark, rest)
        head = self._prose.empty and not self._calls and not self._waiting
        return self._begin(Thinking(mark, head=head), rest)

    def _open_lone(self, mark: str, rest: str, end: bool) -> bool:
        """A closing tag whose opening one is missing: all so far was reasoning."""
        if mark in self._mentioned:
            self._mentioned.discard(mark)
            return self._literally(mark, rest)
        self._rest = rest
        if self._thought:
            self._hear(Gap())
            return True
        before = "".join(self._pieces)[: self._place() - len(mark)]
        self._set_aside += self._calls
        self._clear()
        self._hear(Thought(before.strip()))
        return True

    def _open_header(self, mark: str, rest: str, end: bool) -> bool:
        """Harmony: a header says to whom the message goes."""
        stop = rest.find("<|message|>")
        if stop < 0 and not end and len(rest) <= _LINE + len("<|message|>"):
            return self._wait(mark + rest)
        if stop < 0 or stop > _LINE:
            return self._literally(mark, rest)
        header, rest = rest[: stop + len("<|message|>")], rest[stop + len("<|message|>") :]
        channel, tool = harmony.route(mark + header)
        # In a reply of this form a recipient makes a call, and nothing else does.
        self._harmony = self._marked = True
        self._mark = _marks((), False)
        if tool:
            region = Marked(harmony.CALL, f"{mark} to={tool}", self._tools, said=mark + header)
            return self._begin(region, rest, "harmony")
        self._hear(Gap())
        if channel == "analysis":
            return self._begin(Thinking(mark, head=True, closes=harmony.ENDS), rest)
        self._rest, self._last, self._line_blank = rest, "\n", True
        return True

    def _open_turn(self, mark: str, rest: str, end: bool) -> bool:
        self._rest = rest
        self._hear(TurnEnd(mark))
        return True

    def _open_noise(self, mark: str, rest: str, end: bool) -> bool:
        self._rest = rest
        self._hear(Gap())
        return True

    def _open_bare(self, mark: str, rest: str, end: bool) -> bool:
        if self._marked or self._literals >= _MOST_BARE:
            return self._literally(mark + rest[:1], rest[1:])
        return self._begin(Bare(self._tools, head=False), mark + rest, "bare")

    def _open_tick(self, mark: str, rest: str, end: bool) -> bool:
        """A run of back-ticks: a fenced block, code in a line, or nothing."""
        line, newline, _ = rest[:_LINE].partition("\n")
        known = bool(newline) or end or len(rest) > _LINE
        if len(mark) >= 3 and self._fences:
            if not known:
                return self._wait(mark + rest)
            if (newline or len(rest) <= _LINE) and self._open_fence(mark, line, rest):
                return True
        close = re.search(rf"(?<!`){mark}(?!`)", line)
        if (close is None and not known) or (close and close.end() == len(rest) and not end):
            return self._wait(mark + rest)
        stop = close.end() if close else 0
        return self._literally(mark + rest[:stop], rest[stop:])

    def _open_fence(self, mark: str, line: str, rest: str) -> bool:
        """Whether the marks and the line after them open a block (or are one)."""
        if mark in line:
            block = None if self._marked else fences.inline(mark, line, self._tools, self._nested)
            if block is None:
                return False
            self._hear(block)
            self._rest, self._head = rest[len(line) :], False
            return True
        if not self._line_blank and not re.fullmatch(r"\w*[ \t\r]*", line):
            return False
        return self._begin_fence(mark, rest[: len(line) + 1], rest)

    def _begin_fence(self, mark: str, opening: str, rest: str) -> bool:
        self._head = False
        block = fences.Fence(mark, opening, self._tools, self._nested, plain=self._marked)
        return self._begin(block, rest[len(opening) :], "fenced")

    def _open_tilde(self, mark: str, rest: str, end: bool) -> bool:
        newline = rest.find("\n", 0, _LINE)
        if newline < 0 and not end and len(rest) <= _LINE:
            return self._wait(mark + rest)
        if newline < 0 or not self._fences:
            return self._literally(mark, rest)
        bare = mark.lstrip()
        self._say(mark[: -len(bare)], rest)
        return self._begin_fence(bare, rest[: newline + 1], rest)

    def _nested(self, text: str) -> tuple[Found, ...]:
        inner = Reader(self._dialects, tools=self._tools.given, fenced=False)
        inner.feed(text)
        reading = inner.finish()
        if reading.text.strip() or reading.reasoning or reading.dialect == "bare":
            return ()
        return tuple(inner._calls)

    # ---- what is heard

    def _hear(self, item: Item) -> None:
        if isinstance(item, Candidate):
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
                self._prose.say(item)
            case Found():
                self._dialect = self._dialect or name
                self._calls.append(item)
                self._prose.take_out()
                self._after_call, self._head = True, False
            case Thought(text):
                self._thought = True
                self._thoughts.append(text)
                self._prose.take_out()
            case Problem(text):
                self._problems.append(text)
            case Gap():
                self._prose.take_out()
            case TurnEnd(token):
                self._prose.end_token(token)
            case Candidate():
                for call in item.calls or ():
                    self._settle(call, "fenced")

    def _release_fences(self) -> None:
        """A block that is no call: then none of the others is one either."""
        self._all_fences_call = False
        waiting, self._waiting = self._waiting, []
        for item, name in waiting:
            self._settle(item.raw if isinstance(item, Candidate) else item, name)

    def _settle_fences(self) -> None:
        waiting, self._waiting = self._waiting, []
        for item, name in waiting:
            self._settle(item, name)
