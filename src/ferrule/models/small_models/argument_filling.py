"""Fills the arguments of a chosen tool, slot by slot, with a small model.

What the request settles alone is taken; where several pieces would do, the model writes the value
under a grammar that lets it write nothing else. The prompt is the same up to the request, so the
server's prefix cache holds; each value is a handful of tokens. Nothing runs away: every grammar is
finite or bounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from ferrule.core.calls import compact
from ferrule.tools.word_stems import content, first_sentence

from .candidates import evident, named_choices, spoken_of, values
from .evidence import begins
from .lists import lists
from .numbers import assign
from .request import Request
from .slots import Slot, Value, read_slots

MOST_TOKENS = 64
"""Per value. A value is copied or bounded by its grammar; this is the last stop."""

MOST_OFFERED, READ = 200, 2400
"""Values in one grammar, and characters of a request in a prompt: a pasted text makes neither
without end.
"""


class Powers(Protocol):
    """What a wire to a small local model can do beyond `Wire`. Only `Local` has it.

    Contract: greedy (the same prompt gives the same text); raises ProviderError; a cancelled call
    may still work to its bound in the background, but its answer goes nowhere.
    """

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        """The continuation of a raw prompt that fits a GBNF grammar."""
        ...

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        """One vector a text: the hidden state at its last token, of length 1.

        `keep`: they may be kept on disk for later runs; never set for what a person said.
        """
        ...


INVENTED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        (
            "send_letter: Send a letter to a person. Arguments: to (Name of the person), message "
            "(Text of the letter)"
        ),
        "Write to Ann that 'the parcel has come'",
        {"to": "Ann", "message": "the parcel has come"},
    ),
    (
        (
            "grow_plant: Plant seeds in the garden. Arguments: seed (Kind of seed), rows (Number "
            "of rows), depth (Depth in cm)"
        ),
        "Put in 3 rows of carrots, 5 cm deep",
        {"seed": "carrots", "rows": 3, "depth": 5},
    ),
    (
        (
            "lend_book: Lend a book to a reader. Arguments: title (Title of the book), reader "
            "(Id of the reader), days (For how many days)"
        ),
        "reader_17 would like to borrow Moby Dick for 14 days",
        {"title": "Moby Dick", "reader": "reader_17", "days": 14},
    ),
    (
        (
            "find_recipe: Find recipes. Arguments: dish (What to cook), source (Cookbook file to "
            "look in)"
        ),
        "Is there anything about rice pudding in sweets/puddings.txt?",
        {"dish": "rice pudding", "source": "sweets/puddings.txt"},
    ),
)
"""Tools and requests of no catalog: they show the form, and that values are copied and end where
they end.
"""

HEAD = "Fill in the arguments of the tool from the request.\n\n"


def shown(tool: str, request: str, arguments: str) -> str:
    return f"Tool: {tool}\nRequest: {request}\nArguments: {arguments}"


def preamble() -> str:
    """The stable part of every prompt."""
    return HEAD + "".join(shown(t, r, json.dumps(a)) + "\n\n" for t, r, a in INVENTED)


def described(name: str, description: str, slots: Sequence[Slot]) -> str:
    """One line about a tool, its slots in the order in which they are filled."""
    listed = ", ".join(
        f"{s.name} ({first_sentence(s.about)})" if s.about else s.name for s in slots
    )
    about = first_sentence(description)
    return f"{name}: {about}. Arguments: {listed}" if slots else f"{name}: {about}"


class Filling:
    """One call's arguments in the making."""

    def __init__(
        self,
        powers: Powers,
        name: str,
        description: str,
        schema: Any,
        examples: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._powers = powers
        self._name, self._description = name, description
        self._slots = read_slots(schema)
        self._examples = examples

    async def arguments(self, text: str) -> dict[str, Any]:
        """The arguments for a request."""
        return await self.of(Request(text, frozenset(content(self._name))))

    async def of(self, request: Request) -> dict[str, Any]:
        """The arguments from what of a request is free; what they use is taken."""
        given: dict[str, Any] = {}
        await self._fill([s for s in self._slots if s.required], request, given)
        for slot in self._slots:
            if not slot.required and slot.name not in given and (found := spoken_of(slot, request)):
                await self._settle(slot, found, request, given, [])
        return {slot.name: given[slot.name] for slot in self._slots if slot.name in given}

    async def _fill(self, slots: Sequence[Slot], request: Request, given: dict[str, Any]) -> None:
        self._take_choices(request, given)
        for slot in [s for s in slots if s.kind == "object" and s.name not in given]:
            given[slot.name] = await self._object(slot, request)
        self._take_numbers(request, given)
        for slot in [s for s in slots if s.name not in given]:
            for span in evident(slot, request)[:1]:
                given[slot.name] = span.text
                request.take(span)
        for slot in _in_order([s for s in slots if s.name not in given]):
            others = [s for s in slots if s.name not in given and s is not slot]
            if slot.kind == "array":
                given[slot.name] = await self._list(slot, request, given)
            else:
                await self._settle(slot, values(slot, request, others), request, given, others)

    def _take_choices(self, request: Request, given: dict[str, Any]) -> None:
        """Choices and lists of choices that the request names: their words are not free for other
        slots.
        """
        for slot in self._slots:
            if slot.kind == "enum" and len(named := named_choices(slot, request)) == 1:
                given[slot.name] = named[0].value
                request.take(named[0].span)
            elif slot.kind == "array" and slot.item and slot.item.kind in ("enum", "array"):
                for made, pieces in lists(slot, request)[:1]:
                    given[slot.name] = made
                    for piece in pieces:
                        request.take(piece)

    def _take_numbers(self, request: Request, given: dict[str, Any]) -> None:
        numeric = [
            s for s in self._slots if s.kind in ("integer", "number") and s.name not in given
        ]
        for slot in [
            s for s in self._slots if s.kind == "array" and s.required and s.name not in given
        ]:
            if slot.item and slot.item.kind in ("integer", "number") and lists(slot, request):
                return  # numbers in lists first: which are single is known when the lists are
        for name, value in assign(numeric, request).items():
            request.take(value.span)
            given[name] = value.value

    async def _settle(
        self,
        slot: Slot,
        offered: list[Value],
        request: Request,
        given: dict[str, Any],
        others: Sequence[Slot],
    ) -> None:
        chosen = _sure(slot, offered, request, others) or await self._ask(
            slot, offered, request, given
        )
        request.take(chosen.span)
        given[slot.name] = chosen.value

    async def _ask(
        self, slot: Slot, offered: list[Value], request: Request, given: dict[str, Any]
    ) -> Value:
        written = {compact(v.value): v for v in reversed(_nearest(slot, offered, request))}
        text = await self._powers.complete(
            self._prompt(slot, request, given),
            grammar=_grammar(slot, list(written)),
            max_tokens=MOST_TOKENS,
        )
        text = text.strip() if written else text.strip().rstrip(",}")
        if text in written:
            return written[text]
        try:
            return Value(json.loads(text))
        except (ValueError, RecursionError):
            return offered[0] if offered else Value("")

    def _prompt(self, slot: Slot, request: Request, given: dict[str, Any]) -> str:
        filled = [s for s in self._slots if s.name in given]
        tool = described(
            self._name,
            self._description,
            [*filled, slot] if slot not in filled else filled,
        )
        begun = "".join(
            f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}, " for k, v in given.items()
        )
        own = "".join(shown(tool, r, a) + "\n\n" for r, a in self._examples)
        return (
            preamble()
            + own
            + shown(tool, _cut(request.text), "{" + begun + json.dumps(slot.name) + ": ")
        )

    async def _list(self, slot: Slot, request: Request, given: dict[str, Any]) -> list[Any]:
        item = slot.item
        if item is None or item.kind not in ("string", "enum", "integer", "number"):
            return []
        if runs := [run for run in lists(slot, request) if all(map(request.is_free, run[1]))]:
            best = max(
                runs,
                key=lambda run: (-request.near(run[1][0], slot.words), len(run[0])),
            )
            for span in best[1]:
                request.take(span)
            return best[0]
        offered = values(item, request)
        if not offered:
            return []
        chosen = await self._ask(item, offered, request, given)
        request.take(chosen.span)
        return [chosen.value]

    async def _object(self, slot: Slot, request: Request) -> dict[str, Any]:
        if not slot.schema.get("properties"):
            return {}
        inner = Filling(self._powers, slot.name, slot.about, slot.schema)
        return await inner.of(request)


def _in_order(slots: Sequence[Slot]) -> list[Slot]:
    """Paths first, then what something begins with, then by the schema: what these take away makes
    the others plain.
    """
    return sorted(slots, key=lambda s: (s.role != "path", not begins(s)))


def _sure(
    slot: Slot, offered: list[Value], request: Request, others: Sequence[Slot]
) -> Value | None:
    """The value that needs no model: the only one, or the number that stands by the slot's own
    word.
    """
    if len(offered) == 1:
        return offered[0]
    alike = [o for o in others if (o.kind, o.role == "path") == (slot.kind, slot.role == "path")]
    if (
        slot.kind == "string"
        and len(offered) == len(alike) + 1
        and all(_marked(v) for v in offered)
    ):
        return offered[
            0
        ]  # as many pieces as slots: people name things in the order they are asked for
    if slot.kind in ("integer", "number") and offered:
        own = slot.words - frozenset(w for o in others for w in o.words)
        near = [(request.near(v.span, own, 3), v) for v in offered if v.span]
        best = min(gap for gap, _ in near)
        closest = [v for gap, v in near if gap == best]
        if best <= 3 and len(closest) == 1:
            return closest[0]
    return None


def _nearest(slot: Slot, offered: list[Value], request: Request) -> list[Value]:
    """At most so many values, those that stand nearest to the slot's words, in their order."""
    if len(offered) <= MOST_OFFERED:
        return offered
    far = sorted(range(len(offered)), key=lambda i: _gap(slot, offered[i], request))
    return [offered[i] for i in sorted(far[:MOST_OFFERED])]


def _gap(slot: Slot, value: Value, request: Request) -> int:
    return request.near(value.span, slot.words, 8) if value.span else 0


def _cut(text: str) -> str:
    half = READ // 2
    return text if len(text) <= READ else f"{text[:half]} [...] {text[-half:]}"


def _marked(value: Value) -> bool:
    return value.span is not None and value.span.kind in ("quoted", "path", "url")


def _grammar(slot: Slot, written: Sequence[str]) -> str:
    if written:
        return "root ::= " + " | ".join(_literal(text) for text in written)
    # What may follow a number ends it: without it the model could only go on with digits.
    if slot.kind == "integer":
        return 'root ::= "-"? [0-9]{1,6} [,}]'
    if slot.kind == "number":
        return 'root ::= "-"? [0-9]{1,6} ("." [0-9]{1,4})? [,}]'
    return 'root ::= "\\"" [^"\\\\\\x00-\\x1f]{0,60} "\\""'


def _literal(text: str) -> str:
    return (
        '"'
        + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        + '"'
    )
