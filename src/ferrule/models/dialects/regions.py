"""Regions: parts of a reply that are not prose, each followed to its end.

    Marked     a call between marks
    Thinking   reasoning between tags
    Headless   reasoning at the start of a reply, whose opening tag stands in the prompt
    Bare       a value without marks
    Doubted    what stands behind a call whose end is not known

A region is fed text as it arrives, keeps it, and looks at each piece once. What it decides depends
on the text alone, never on how it was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from ferrule.core.value_class import frozen

from . import call_shapes, lenient_json, pythonic, reasoning
from .brackets import BracketMatcher
from .dialect import MAX_MARK_LENGTH, BodyEnding, CallForm, FoundCall
from .offered_tools import OfferedTools

_MOST_TRIES = 64
"""Closing marks that are tried within one call. With more of them it ends at the first one."""


@frozen
class ReasoningText:
    """Reasoning."""

    text: str


@frozen
class Problem:
    """Something odd about the reply, to be reported."""

    text: str


@frozen
class FencedBlock:
    """A fenced block. Its calls count only if every fenced block of the reply consists of calls.

    `calls` is None if this block does not.
    """

    raw: str
    calls: tuple[FoundCall, ...] | None


@frozen
class Omission:
    """A place at which something stood that is neither text nor a call: a header, a wrapper."""


@frozen
class TurnEnd:
    """A token that ends a turn; dropped unless text follows it."""

    token: str


Item = str | FoundCall | ReasoningText | Problem | FencedBlock | Omission | TurnEnd


@dataclass(slots=True)
class RegionOutcome:
    """What a region was read as.

    Attributes:
        items: What it holds, in order.
        rest: Text behind it, which is still to be read.
        done: Whether the region has ended.
        literal: Whether it was no region after all, and its text is prose.
        forced: Whether it had no whole end and was ended all the same.
        fences: Whether fences are looked for in the rest.
        doubtful: Whether no call of the reply is known with certainty.
    """

    items: list[Item] = field(default_factory=list["Item"])
    rest: str = ""
    done: bool = True
    literal: bool = False
    forced: bool = False
    fences: bool = True
    doubtful: bool = False


class Region(Protocol):
    """A part of a reply that is followed to its end."""

    def feed(self, piece: str, end: bool, cut: bool = False) -> RegionOutcome | None:
        """Take more text.

        Args:
            piece: The text, cut anywhere.
            end: Whether no more text will come, so that an outcome is due.
            cut: Whether the model was stopped at its output limit.

        Returns:
            The outcome, or None while more text is needed.
        """
        ...


class MarkedRegion:
    """A call between marks.

    Every closing mark is tried; the first one that leaves a whole call ends it.
    """

    def __init__(
        self,
        form: CallForm,
        opener: str,
        tools: OfferedTools,
        *,
        said: str | None = None,
        hasty: bool = False,
        lone: bool = False,
    ) -> None:
        """Begin a call.

        Args:
            form: How the call is read.
            opener: The mark that opened it.
            tools: The tools on offer.
            said: The opener as it stood in the text, if that was not `opener`.
            hasty: Whether the call ends at its first closing mark.
            lone: Whether nothing stood before the opener on its line.
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

    def feed(self, piece: str, end: bool, cut: bool = False) -> RegionOutcome | None:
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
        self._tail = text[-(MAX_MARK_LENGTH - 1) :]
        return self._end_unclosed(cut) if end else None

    def _try(self, start: int, stop: int) -> RegionOutcome | None:
        """Try whether the call ends at a closing mark, from `start` to `stop`."""
        if self._first is None:
            self._first = (start, stop)
        self._tried += 1
        if self._tried > _MOST_TRIES:
            return None
        outcome = self._read(BodyEnding.CLOSED, start, stop)
        if outcome is None and self._hasty:
            return self._read(BodyEnding.FORCED, start, stop)
        return outcome

    def _text(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def _read(self, ending: BodyEnding, start: int, stop: int) -> RegionOutcome | None:
        text = self._text()
        parsed = self._form.read(self._opener, text[:start], ending, self._tools)
        if parsed is None:
            return None
        if parsed.rest is not None:
            stop = parsed.rest
            space = len(text[stop:]) - len(text[stop:].lstrip())
            closing = self._closes.match(text, stop + space)
            if closing and parsed.calls:
                stop = closing.end()
        items: list[Item] = [*parsed.items, *map(Problem, parsed.problems)]
        return RegionOutcome(items, text[stop:], doubtful=parsed.doubtful)

    def _end_unclosed(self, cut: bool) -> RegionOutcome:
        """End a call that nothing closed."""
        outcome = self._read(BodyEnding.OPEN, self._length, self._length)
        # A reply that was cut ends inside this call: what looks like its end, and what follows
        # that, is a part of a value.
        is_certain = outcome is not None and _has_only_whole_calls(outcome)
        if self._first is not None and not cut and not is_certain:
            outcome = self._read(BodyEnding.FORCED, *self._first)
        if outcome is not None:
            outcome.forced = True
            return outcome
        text = self._text()
        if self._lone and (not text.strip() or _CALL_BEGINS.match(text)):
            # This is the beginning of a call and does not just mention one: a person sees neither
            # its mark nor what came after it.
            problem = f"a call was begun and not finished, and left out of the text: {text.strip()}"
            return RegionOutcome([Omission(), Problem(problem.strip(": "))])
        items: list[Item] = [self._said]
        if "|" in self._opener or "｜" in self._opener or self._opener.startswith("["):
            items.append(Problem(f"`{self._opener}` led to no call and was left in the text"))
        return RegionOutcome(items, text, literal=True)


_CALL_BEGINS = re.compile(
    r"\s*(?:\{\s*[\"']|\[\s*\{|<(?:function|invoke|parameter|\||｜)|functions\.|call:)"
)
"""Matches the beginning of a call, behind the mark that opens it."""


def _has_only_whole_calls(outcome: RegionOutcome) -> bool:
    """Return whether reading to the end of the reply found whole calls and nothing else."""
    if outcome.doubtful:
        return True  # what was found in doubt stays so
    calls = [item for item in outcome.items if isinstance(item, FoundCall)]
    if not calls or len(calls) < len(outcome.items):
        return False
    return not any(call.cut for call in calls)


class ReasoningRegion:
    """Reasoning up to its closing tag.

    Without a closing tag it is reasoning only if the reply began with it.
    """

    def __init__(self, opener: str, *, head: bool, closes: str = "") -> None:
        self._opener = opener
        self._head = head
        self._closes = re.compile(closes or re.escape(reasoning.closing_tag(opener)))
        self._parts: list[str] = []
        # Begins with one character of what came before, for marks that look behind.
        self._tail = "\n"

    def feed(self, piece: str, end: bool, cut: bool = False) -> RegionOutcome | None:
        text = self._tail + piece
        match = self._closes.search(text, 1)
        if match and (match.end() < len(text) or end):
            thought = "".join(self._parts) + text[1 : match.start()]
            return RegionOutcome([ReasoningText(thought.strip())], text[match.end() :])
        keep = max(1, min(len(text) - MAX_MARK_LENGTH + 1, match.start() if match else len(text)))
        self._parts.append(text[1:keep])
        self._tail = text[keep - 1 :]
        return self._end_unclosed("".join(self._parts) + self._tail[1:]) if end else None

    def _end_unclosed(self, text: str) -> RegionOutcome:
        if not self._head:
            return RegionOutcome([self._opener], text, literal=True)
        section = reasoning.IMPLICIT_END.search(text)
        if section:
            return RegionOutcome(
                [ReasoningText(text[: section.start()].strip())], text[section.start() :]
            )
        return RegionOutcome([ReasoningText(text.strip())])


class HeadlessReasoningRegion:
    """Reasoning at the start of a reply that was opened by the prompt.

    Without a closing tag it is plain text.
    """

    def __init__(self) -> None:
        self._thinking = ReasoningRegion("<think>", head=False, closes=reasoning.LONE_CLOSING_TAGS)

    def feed(self, piece: str, end: bool, cut: bool = False) -> RegionOutcome | None:
        outcome = self._thinking.feed(piece, end)
        if outcome is not None and outcome.literal:
            section = reasoning.IMPLICIT_END.search(outcome.rest)
            if section:
                thought = ReasoningText(outcome.rest[: section.start()].strip())
                return RegionOutcome([thought], outcome.rest[section.start() :])
            return RegionOutcome([], outcome.rest, literal=True)
        return outcome


class DoubtfulRegion:
    """What stands behind a call whose end is not known.

    It may be a part of that call, so it is left out of the text.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []

    def feed(self, piece: str, end: bool, cut: bool = False) -> RegionOutcome | None:
        self._parts.append(piece)
        if not end:
            return None
        text = "".join(self._parts).strip()
        if not text:
            return RegionOutcome([])
        problem = f"left out of the text, as it may belong to a call that cannot be read: {text}"
        return RegionOutcome([Omission(), Problem(problem)])


_PROBE = re.compile(r"[ \t]*(?:\{\s*[\"']|\[\s*\{|\[\s*[A-Za-z_][\w.]*\(|[A-Za-z_][\w.]*\()")
_PROBE_MORE = re.compile(r"[ \t]*(?:[\[{]\s*|\[\s*[A-Za-z_][\w.]*|[A-Za-z_][\w.]*)?\Z")
_GLUE = re.compile(r"[\s;,]*")
_ORPHAN = re.compile(r"</(?:tool_calls?|function_calls?|function)>|<\|/tool_calls?\|>")
_TURN = re.compile(r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end)\|>|</s>|<end_of_turn>")
_LONGEST_PROBE = 160


class BareRegion:
    """A value without marks: JSON (one or several values), a pythonic list, or one call in Python.

    It holds calls if it is the whole reply, or if a closing tag follows whose opening is missing. A
    call in Python must be one of a tool on offer.
    """

    def __init__(self, tools: OfferedTools, *, head: bool) -> None:
        self._tools = tools
        self._head = head
        self._raw: list[str] = []
        self._probe = ""
        self._value: list[str] = []
        self._balanced: BracketMatcher | None = None
        self._calls: list[FoundCall] = []
        self._after = ""

    def feed(self, piece: str, end: bool, cut: bool = False) -> RegionOutcome | None:
        if self._balanced is None and not self._calls:
            probe = self._probe + piece
            begins = self._begins_value(probe)
            may_begin = len(probe) < _LONGEST_PROBE and _PROBE_MORE.match(probe)
            if begins is None and not end and may_begin:
                self._probe = probe
                return None
            if not begins:
                return self._give_up(probe)
            self._balanced = BracketMatcher()
            # What stands before the bracket (a name) belongs to the value, but opens nothing.
            begin = re.search(r"[{\[(]", probe)
            at = begin.start() if begin else 0
            self._keep(probe[:at])
            piece = probe[at:]
        return self._walk(piece, end, cut)

    def _begins_value(self, probe: str) -> bool | None:
        """Return whether a value begins here; None while that cannot be told."""
        match = _PROBE.match(probe)
        if match is None:
            return None
        begin = match.group().strip()
        if begin[0] in "{[":
            return self._head or begin[0] == "{"
        return self._head and begin[:-1] in self._tools.names

    def _keep(self, text: str) -> None:
        self._raw.append(text)
        self._value.append(text)

    def _walk(self, piece: str, end: bool, cut: bool) -> RegionOutcome | None:
        at = 0
        while True:
            if self._balanced is not None:
                stop = self._balanced.feed(piece, at)
                self._keep(piece[at:stop])
                if stop is None:
                    return self._end_unfinished(cut) if end else None
                at = stop
                self._balanced = None
                calls = self._read("".join(self._value))
                if not calls:
                    return RegionOutcome(["".join(self._raw)], piece[at:])
                self._calls += calls
                self._value = []
            step = self._read_after_value(piece, at, end)
            if not isinstance(step, int):
                return step
            at = step

    def _read(self, value: str) -> list[FoundCall] | None:
        """Return the calls that a whole value is, or None."""
        text = value.strip()
        if text.startswith("{") or re.match(r"\[\s*\{", text):
            return self._read_json(text)
        found = pythonic.read_python(text, self._tools)
        if found and self._tools and not all(self._tools.has_similar(call.tool) for call in found):
            return None
        return found

    def _read_json(self, text: str) -> list[FoundCall] | None:
        decoded = lenient_json.decode_leniently(text)
        if decoded is None:
            return None
        value, repairs = decoded
        found = call_shapes.read_call_value(value, narrow=True, tools=self._tools)
        if found is None:
            return None
        return [FoundCall(c.tool, c.arguments, c.repairs + tuple(repairs)) for c in found]

    def _read_after_value(self, piece: str, at: int, end: bool) -> RegionOutcome | int | None:
        """Return the offset at which the next value begins, an outcome, or None to wait."""
        text = self._after + piece[at:]
        self._after = ""
        while True:
            glue = _GLUE.match(text)
            skipped = glue.end() if glue else 0
            self._raw.append(text[:skipped])
            text = text[skipped:]
            if not text:
                if not end:
                    return None
                return self._accept("") if self._head else self._refuse("")
            orphan = _ORPHAN.match(text)
            if orphan:
                return self._accept(text[orphan.end() :])
            turn = _TURN.match(text)
            if turn is None:
                break
            self._raw.append(turn.group())
            text = text[turn.end() :]
        if text[0] in "{[" and self._head:
            self._balanced = BracketMatcher()
            return len(piece) - len(text)
        if text[0] == "<" and ">" not in text and len(text) < 32 and not end:
            self._after = text
            return None
        return self._refuse(text)

    def _accept(self, rest: str) -> RegionOutcome:
        return RegionOutcome([*self._calls], rest)

    def _refuse(self, rest: str) -> RegionOutcome:
        return RegionOutcome(["".join(self._raw)], rest)

    def _end_unfinished(self, cut: bool) -> RegionOutcome:
        """End a value that the reply ended in."""
        raw = "".join(self._raw)
        value = "".join(self._value)
        cut_calls = self._read_cut(value) if self._head else None
        if cut_calls:
            return RegionOutcome([*self._calls, *cut_calls])
        if self._calls and self._head:
            problem = Problem(f"left out of the text, which was cut: {value.strip()}")
            return RegionOutcome([*self._calls, problem])
        if cut:
            return RegionOutcome([raw])
        return self._give_up(raw)

    def _read_cut(self, value: str) -> list[FoundCall] | None:
        if value.lstrip().startswith("{") or re.match(r"\s*\[\s*\{", value):
            return call_shapes.read_cut_json(value, self._tools)
        return pythonic.read_cut_python(value, self._tools)

    def _give_up(self, raw: str) -> RegionOutcome:
        """End a region in which no value begins.

        Elsewhere than at the head its first character is passed on, so that reading moves on.
        """
        if self._head:
            return RegionOutcome([], raw, literal=True)
        return RegionOutcome([raw[:1]], raw[1:], literal=True)
