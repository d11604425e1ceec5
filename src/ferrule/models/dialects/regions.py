"""Parts of a reply that are not prose, each followed to its end: marked calls, reasoning, bare
values.

A region is fed text as it arrives, keeps it, and looks at each piece once. What it decides
depends on the text alone, never on how it was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from ferrule.core.frozen import frozen

from . import call_shapes, lenient_json, pythonic, reasoning
from .brackets import Balanced
from .dialect import LONGEST, Ending, Form, Found, Tools

_TRIES = 64
"""Closing marks that are tried within one call. A body with more of them is read at its first."""


@frozen
class Thought:
    """Reasoning."""

    text: str


@frozen
class Problem:
    """Something to report."""

    text: str


@frozen
class Candidate:
    """A fenced block. It is calls only if every fenced block of the reply is; `calls` None: it is
    not.
    """

    raw: str
    calls: tuple[Found, ...] | None


@frozen
class Gap:
    """Something that is no text and means nothing: a header, a wrapper."""


@frozen
class TurnEnd:
    """A token that ends a turn; dropped unless text follows it."""

    token: str


Item = str | Found | Thought | Problem | Candidate | Gap | TurnEnd


@dataclass(slots=True)
class Outcome:
    """What a region came to. `rest` is text that is to be read on; not `done`: the region goes on.

    `literal`: the region was none; its text is prose. `forced`: it had no whole end and was ended
    all the same. `fences` False: read on without looking for fences. `doubtful`: no call of the
    reply is known with certainty.
    """

    items: list[Item] = field(default_factory=list["Item"])
    rest: str = ""
    done: bool = True
    literal: bool = False
    forced: bool = False
    fences: bool = True
    doubtful: bool = False


class Region(Protocol):
    """See the head of this file. `end`: no more text will come, and an outcome is due. `cut`: the
    model was stopped.
    """

    def feed(self, piece: str, end: bool, cut: bool = False) -> Outcome | None: ...


class Marked:
    """A call between marks. Every closing mark is tried; the first that leaves a whole call ends
    it.
    """

    def __init__(
        self,
        form: Form,
        opener: str,
        tools: Tools,
        *,
        said: str | None = None,
        hasty: bool = False,
        lone: bool = False,
    ) -> None:
        """`said` is the opener as it stood in the text, if it was not `opener`; `hasty` takes the
        first closing mark; `lone`: nothing stood before it on its line.
        """
        self._form = form
        self._opener = opener
        self._said = opener if said is None else said
        self._tools = tools
        self._hasty = hasty
        self._lone = lone or "|" in opener or "｜" in opener
        self._closes = re.compile(form.closes(opener))
        self._parts: list[str] = []
        self._tail = ""
        self._length = 0
        self._seen = -1
        self._tried = 0
        self._first: tuple[int, int] | None = None

    def feed(self, piece: str, end: bool, cut: bool = False) -> Outcome | None:
        self._parts.append(piece)
        text = self._tail + piece
        base = self._length - len(self._tail)
        self._length += len(piece)
        for match in self._closes.finditer(text):
            if base + match.end() <= self._seen:
                continue
            self._seen = base + match.end()
            if outcome := self._try(base + match.start(), base + match.end()):
                return outcome
        self._tail = text[-(LONGEST - 1) :]
        return self._settle(cut) if end else None

    def _try(self, start: int, stop: int) -> Outcome | None:
        if self._first is None:
            self._first = (start, stop)
        self._tried += 1
        if self._tried > _TRIES:
            return None
        outcome = self._read(Ending.CLOSED, start, stop)
        return (
            self._read(Ending.FORCED, start, stop) if outcome is None and self._hasty else outcome
        )

    def _whole(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def _read(self, ending: Ending, start: int, stop: int) -> Outcome | None:
        text = self._whole()
        parsed = self._form.read(self._opener, text[:start], ending, self._tools)
        if parsed is None:
            return None
        if parsed.rest is not None:
            stop = parsed.rest
            closing = self._closes.match(text, stop + len(text[stop:]) - len(text[stop:].lstrip()))
            stop = closing.end() if closing and parsed.calls else stop
        items: list[Item] = [*parsed.items, *map(Problem, parsed.problems)]
        return Outcome(items, text[stop:], doubtful=parsed.doubtful)

    def _settle(self, cut: bool) -> Outcome:
        outcome = self._read(Ending.OPEN, self._length, self._length)
        # A reply that was cut ends inside this call: what looks like its end, and what follows
        # that, is a part of a value.
        if self._first is not None and not cut and (outcome is None or _doubtful(outcome)):
            outcome = self._read(Ending.FORCED, *self._first)
        if outcome is not None:
            outcome.forced = True
            return outcome
        text = self._whole()
        if self._lone and (not text.strip() or _BODY.match(text)):
            # The beginning of a call, not a word about one: a person sees neither its mark nor what
            # came after it.
            told = f"a call was begun and not finished, and left out of the text: {text.strip()}"
            return Outcome([Gap(), Problem(told.strip(": "))])
        items: list[Item] = [self._said]
        if "|" in self._opener or "｜" in self._opener or self._opener.startswith("["):
            items.append(Problem(f"`{self._opener}` led to no call and was left in the text"))
        return Outcome(items, text, literal=True)


_BODY = re.compile(
    r"\s*(?:\{\s*[\"']|\[\s*\{|<(?:function|invoke|parameter|\||｜)|functions\.|call:)"
)
"""What a call begins with, behind the mark that opens it."""


def _doubtful(outcome: Outcome) -> bool:
    """Whether reading to the end of the reply found anything but whole calls."""
    if outcome.doubtful:
        return False
    calls = [item for item in outcome.items if isinstance(item, Found)]
    return not calls or any(call.cut for call in calls) or len(calls) < len(outcome.items)


class Thinking:
    """Reasoning up to its closing tag. Without one it is reasoning only if the reply began with
    it.
    """

    def __init__(self, opener: str, *, head: bool, closes: str = "") -> None:
        self._opener = opener
        self._head = head
        self._closes = re.compile(closes or re.escape(reasoning.closing(opener)))
        self._parts: list[str] = []
        self._tail = "\n"  # begins with one letter of what came before, for marks that look behind

    def feed(self, piece: str, end: bool, cut: bool = False) -> Outcome | None:
        text = self._tail + piece
        match = self._closes.search(text, 1)
        if match and (match.end() < len(text) or end):
            thought = "".join(self._parts) + text[1 : match.start()]
            return Outcome([Thought(thought.strip())], text[match.end() :])
        keep = max(1, min(len(text) - LONGEST + 1, match.start() if match else len(text)))
        self._parts.append(text[1:keep])
        self._tail = text[keep - 1 :]
        return self._unclosed("".join(self._parts) + self._tail[1:]) if end else None

    def _unclosed(self, text: str) -> Outcome:
        if not self._head:
            return Outcome([self._opener], text, literal=True)
        if section := reasoning.IMPLICIT.search(text):
            return Outcome([Thought(text[: section.start()].strip())], text[section.start() :])
        return Outcome([Thought(text.strip())])


class Headless:
    """The start of a reply whose reasoning was opened by the prompt; without a closing tag it is
    plain text.
    """

    def __init__(self) -> None:
        self._thinking = Thinking("<think>", head=False, closes=reasoning.LONE)

    def feed(self, piece: str, end: bool, cut: bool = False) -> Outcome | None:
        outcome = self._thinking.feed(piece, end)
        if outcome is not None and outcome.literal:
            section = reasoning.IMPLICIT.search(outcome.rest)
            if section:
                thought = Thought(outcome.rest[: section.start()].strip())
                return Outcome([thought], outcome.rest[section.start() :])
            return Outcome([], outcome.rest, literal=True)
        return outcome


class Doubted:
    """What stands behind a call whose end is not known: it may be a part of that call, and is no
    text.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []

    def feed(self, piece: str, end: bool, cut: bool = False) -> Outcome | None:
        self._parts.append(piece)
        if not end:
            return None
        text = "".join(self._parts).strip()
        told = f"left out of the text, as it may belong to a call that cannot be read: {text}"
        return Outcome([Gap(), Problem(told)] if text else [])


_PROBE = re.compile(r"[ \t]*(?:\{\s*[\"']|\[\s*\{|\[\s*[A-Za-z_][\w.]*\(|[A-Za-z_][\w.]*\()")
_PROBE_MORE = re.compile(r"[ \t]*(?:[\[{]\s*|\[\s*[A-Za-z_][\w.]*|[A-Za-z_][\w.]*)?\Z")
_GLUE = re.compile(r"[\s;,]*")
_ORPHAN = re.compile(r"</(?:tool_calls?|function_calls?|function)>|<\|/tool_calls?\|>")
_TURN = re.compile(r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end)\|>|</s>|<end_of_turn>")
_LONGEST_PROBE = 160


class Bare:
    """A value without marks: calls if it is the whole reply, or if a closing tag follows whose
    opening is missing.

    JSON (one or several values), a pythonic list, or one call in Python to a tool on offer.
    """

    def __init__(self, tools: Tools, *, head: bool) -> None:
        self._tools = tools
        self._head = head
        self._raw: list[str] = []
        self._probe = ""
        self._value: list[str] = []
        self._balanced: Balanced | None = None
        self._calls: list[Found] = []
        self._after = ""

    def feed(self, piece: str, end: bool, cut: bool = False) -> Outcome | None:
        if self._balanced is None and not self._calls:
            probe = self._probe + piece
            opened = self._opened(probe)
            if (
                opened is None
                and not end
                and len(probe) < _LONGEST_PROBE
                and _PROBE_MORE.match(probe)
            ):
                self._probe = probe
                return None
            if not opened:
                return self._none(probe)
            self._balanced, piece = Balanced(), probe
            # What stands before the bracket (a name) belongs to the value, but opens nothing.
            begin = re.search(r"[{\[(]", probe)
            at = begin.start() if begin else 0
            self._note(probe[:at])
            piece = probe[at:]
        return self._walk(piece, end, cut)

    def _opened(self, probe: str) -> bool | None:
        match = _PROBE.match(probe)
        if match is None:
            return None
        found = match.group().strip()
        if found[0] in "{[":
            return self._head or found[0] == "{"
        return self._head and found[:-1] in self._tools.names

    def _note(self, text: str) -> None:
        self._raw.append(text)
        self._value.append(text)

    def _walk(self, piece: str, end: bool, cut: bool) -> Outcome | None:
        at = 0
        while True:
            if self._balanced is not None:
                stop = self._balanced.feed(piece, at)
                self._note(piece[at:stop])
                if stop is None:
                    return self._unfinished(cut) if end else None
                at, self._balanced = stop, None
                calls = self._read("".join(self._value))
                if not calls:
                    return Outcome(["".join(self._raw)], piece[at:])
                self._calls += calls
                self._value = []
            step = self._follow(piece, at, end)
            if not isinstance(step, int):
                return step
            at = step

    def _read(self, value: str) -> list[Found] | None:
        text = value.strip()
        if text.startswith("{") or re.match(r"\[\s*\{", text):
            decoded = lenient_json.decode(text)
            found = (
                call_shapes.calls_of(decoded[0], narrow=True, tools=self._tools)
                if decoded
                else None
            )
            if decoded is None or found is None:
                return None
            return [Found(c.tool, c.arguments, c.repairs + tuple(decoded[1])) for c in found]
        found = pythonic.read_python(text, self._tools)
        if found and self._tools and not all(self._tools.near(call.tool) for call in found):
            return None
        return found

    def _follow(self, piece: str, at: int, end: bool) -> Outcome | int | None:
        """After a value: an offset where the next one begins, an outcome, or None to wait."""
        text = self._after + piece[at:]
        self._after = ""
        while True:
            glue = _GLUE.match(text)
            skipped = glue.end() if glue else 0
            self._raw.append(text[:skipped])
            text = text[skipped:]
            if not text:
                return self._accept("") if end and self._head else self._refuse("") if end else None
            if orphan := _ORPHAN.match(text):
                return self._accept(text[orphan.end() :])
            turn = _TURN.match(text)
            if turn is None:
                break
            self._raw.append(turn.group())
            text = text[turn.end() :]
        if text[0] in "{[" and self._head:
            self._balanced = Balanced()
            return len(piece) - len(text)
        if text[0] == "<" and ">" not in text and len(text) < 32 and not end:
            self._after = text
            return None
        return self._refuse(text)

    def _accept(self, rest: str) -> Outcome:
        return Outcome([*self._calls], rest)

    def _refuse(self, rest: str) -> Outcome:
        return Outcome(["".join(self._raw)], rest)

    def _unfinished(self, cut_off: bool) -> Outcome:
        raw = "".join(self._raw)
        value = "".join(self._value)
        cut: list[Found] | None = None
        if self._head:
            python = not value.lstrip().startswith("{") and not re.match(r"\s*\[\s*\{", value)
            cut = (
                pythonic.cut_python(value, self._tools)
                if python
                else call_shapes.cut_json(value, self._tools)
            )
        if cut:
            return Outcome([*self._calls, *cut])
        if self._calls and self._head:
            return Outcome(
                [*self._calls, Problem(f"left out of the text, which was cut: {value.strip()}")]
            )
        if cut_off:
            return Outcome([raw])
        return self._none(raw)

    def _none(self, raw: str) -> Outcome:
        """No value begins here. Not at the head, its first character is passed, so that reading
        moves on.
        """
        return (
            Outcome([], raw, literal=True)
            if self._head
            else Outcome([raw[:1]], raw[1:], literal=True)
        )
