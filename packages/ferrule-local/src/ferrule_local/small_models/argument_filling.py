"""Fill the arguments of a chosen tool, slot by slot, with a small model.

What the request settles by itself is taken. Texts are ranked (`value_ranking`). Where several
pieces would do, the model writes the value under a grammar that lets it write nothing else. The
prompt is the same up to the request, so the server's prefix cache holds, and each value is a
handful of tokens. Nothing runs away: every grammar is finite or bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import encode_json, parse_json
from ferrule.tools.word_stems import content_stems, first_sentence

from .candidates import (
    find_mentioned_values,
    find_named_choices,
    find_values,
    is_opening_verb,
)
from .evidence import find_coded_number
from .lists import read_lists
from .numbers import assign_numbers
from .raw_model import RawModel
from .request import Request, cut_request
from .slots import Slot, Value, read_slots
from .value_ranking import assign_values, find_close_values, rank_slots

MAX_VALUE_TOKENS = 64
"""Tokens of one value. It is copied or bounded by its grammar; this is a last limit."""

MAX_OFFERED_VALUES = 200
"""Values in one grammar."""

MAX_EXAMPLES = 3
"""Example requests of a tool in a prompt."""

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
"""Invented tools, requests and arguments, as examples for the model.

They show the form, and that values are copied and where they end.
"""

INSTRUCTION = "Fill in the arguments of the tool from the request.\n\n"
"""The instruction at the head of every prompt."""


def format_example(tool: str, request: str, arguments: str) -> str:
    """Return one example, or the beginning of the one that the model goes on with."""
    return f"Tool: {tool}\nRequest: {request}\nArguments: {arguments}"


def format_preamble() -> str:
    """Return the part that all prompts begin with."""
    examples = [
        format_example(tool, request, json.dumps(arguments))
        for tool, request, arguments in INVENTED
    ]
    return INSTRUCTION + "".join(example + "\n\n" for example in examples)


def describe_tool(name: str, description: str, slots: Sequence[Slot]) -> str:
    """Return one line about a tool, with its slots in the order in which they are filled."""
    line = f"{name}: {first_sentence(description)}"
    if not slots:
        return line
    listed = [
        f"{slot.name} ({first_sentence(slot.about)})" if slot.about else slot.name for slot in slots
    ]
    return f"{line}. Arguments: {', '.join(listed)}"


class ArgumentFiller:
    """Fills the arguments of one call."""

    def __init__(
        self,
        powers: RawModel,
        name: str,
        description: str,
        schema: Any,
        examples: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Set up the filling of a tool's arguments.

        Args:
            powers: The model.
            name: The tool's name.
            description: The tool's description.
            schema: The JSON Schema of its arguments.
            examples: Requests with their arguments as JSON. The first `MAX_EXAMPLES` come after the
                invented ones in prompts.
        """
        self._powers = powers
        self._name = name
        self._description = description
        self._slots = read_slots(schema)
        self._examples = examples

    async def fill(self, text: str) -> dict[str, Any]:
        """Return the arguments for a request."""
        return await self.fill_from(self.read(text))

    def read(self, text: str) -> Request:
        """Return a text as a request of this tool."""
        named = frozenset(word for slot in self._slots for word in content_stems(slot.name))
        return Request(text, frozenset(content_stems(self._name)), named)

    async def fill_from(self, request: Request) -> dict[str, Any]:
        """Return the arguments from the pieces of a request that are free, and take those used."""
        given: dict[str, Any] = {}
        self._take_choices(request, given)
        for slot in _find_unfilled(self._slots, given):
            if slot.required and slot.kind == "object":
                given[slot.name] = await self._fill_object(slot, request)
        self._take_numbers(request, given)
        await self._take_texts(request, given)
        for slot in _find_unfilled(self._slots, given):
            if slot.required and slot.kind == "array":
                given[slot.name] = await self._fill_list(slot, request, given)
            elif slot.required:
                offered = find_values(slot, request)
                await self._fill_slot(slot, offered, request, given)
            elif found := find_mentioned_values(slot, request):
                await self._fill_slot(slot, found, request, given)
        self._give_quotation_left(request, given)
        return {slot.name: given[slot.name] for slot in self._slots if slot.name in given}

    async def _take_texts(self, request: Request, given: dict[str, Any]) -> None:
        """Fill text slots with the likeliest values of all of them together.

        Where another piece is about as likely, and no other slot has it, the model writes one of
        the two.
        """
        texts = [slot for slot in _find_unfilled(self._slots, given) if slot.kind == "string"]
        ranked = rank_slots(texts, request, self._slots)
        assigned = assign_values(ranked)
        settled = {name: one.value for name, one in assigned.items() if one.value is not None}
        for slot in texts:
            if slot.name not in settled:
                continue
            others = [value for name, value in settled.items() if name != slot.name]
            offered = find_close_values(assigned[slot.name], ranked[slot.name], others)
            if len(offered) > 1:
                settled[slot.name] = await self._ask(slot, offered, request, given)
            request.take(settled[slot.name].span)
            given[slot.name] = settled[slot.name].value

    def _give_quotation_left(self, request: Request, given: dict[str, Any]) -> None:
        """Fill the one optional text with the one quotation that is left."""
        texts = [slot for slot in _find_unfilled(self._slots, given) if slot.role == "text"]
        quoted = request.free_atoms("quoted")
        if len(texts) == len(quoted) == 1:
            given[texts[0].name] = quoted[0].text
            request.take(quoted[0])

    def _take_choices(self, request: Request, given: dict[str, Any]) -> None:
        """Fill slots with the choices, and lists of choices, that the request names.

        Their words are not free for other slots then.
        """
        for slot in self._slots:
            if coded := find_coded_number(slot, request):
                given[slot.name] = coded.value
            elif slot.kind == "enum":
                named = find_named_choices(slot, request)
                if len(named) == 1 and not is_opening_verb(named, request):
                    given[slot.name] = named[0].value
                    request.take(named[0].span)
            elif slot.kind == "array" and slot.item and slot.item.kind in ("enum", "array"):
                for items, pieces in read_lists(slot, request)[:1]:
                    given[slot.name] = items
                    for piece in pieces:
                        request.take(piece)

    def _take_numbers(self, request: Request, given: dict[str, Any]) -> None:
        """Fill numeric slots with the numbers that the request settles."""
        unfilled = _find_unfilled(self._slots, given)
        for slot in unfilled:
            if slot.kind != "array" or not slot.required or slot.item is None:
                continue
            if slot.item.kind in ("integer", "number") and read_lists(slot, request):
                return  # numbers in lists first: which are single is known when the lists are
        numeric = [slot for slot in unfilled if slot.kind in ("integer", "number")]
        for name, value in assign_numbers(numeric, request).items():
            request.take(value.span)
            given[name] = value.value

    async def _fill_slot(
        self, slot: Slot, offered: list[Value], request: Request, given: dict[str, Any]
    ) -> None:
        chosen = _find_certain(slot, offered, request, _find_unfilled(self._slots, given))
        if chosen is None and slot.kind == "enum":
            chosen = self._find_choice_by_example(slot, offered, request)
        if chosen is None:
            chosen = await self._ask(slot, offered, request, given)
        request.take(chosen.span)
        given[slot.name] = chosen.value

    def _find_choice_by_example(
        self, slot: Slot, offered: Sequence[Value], request: Request
    ) -> Value | None:
        """Return the choice of the example request that has the largest share of its words here.

        None if two choices are equal. The verb that the request begins with does not count.
        """
        said = frozenset(content_stems(request.text)) - request.tool_words - {*request.stems[:1]}
        shares: dict[Any, float] = {}
        for text, arguments in self._examples:
            choice = parse_json(arguments).get(slot.name)
            used = frozenset(content_stems(text))
            share = len(said & used) / max(1, len(used))
            shares[choice] = max(share, shares.get(choice, 0.0))
        best = max(shares.values(), default=0.0)
        nearest = [choice for choice, share in shares.items() if share == best > 0]
        if len(nearest) != 1:
            return None
        return next((value for value in offered if value.value == nearest[0]), None)

    async def _ask(
        self, slot: Slot, offered: list[Value], request: Request, given: dict[str, Any]
    ) -> Value:
        """Let the model write one of the values offered, or one of its own if there are none."""
        written = {encode_json(v.value): v for v in reversed(_nearest(slot, offered, request))}
        text = await self._powers.complete(
            self._prompt(slot, request, given),
            grammar=_grammar(slot, list(written)[::-1]),
            max_tokens=MAX_VALUE_TOKENS,
        )
        text = text.strip() if written else text.strip().rstrip(",}")
        if text in written:
            return written[text]
        try:
            return Value(parse_json(text))
        except ValueError:
            return offered[0] if offered else Value("")

    def _prompt(self, slot: Slot, request: Request, given: dict[str, Any]) -> str:
        slots = [s for s in self._slots if s.name in given]
        if slot not in slots:
            slots.append(slot)
        tool = describe_tool(self._name, self._description, slots)
        filled = [
            f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}, "
            for name, value in given.items()
        ]
        begun = "{" + "".join(filled) + json.dumps(slot.name) + ": "
        examples = [
            format_example(tool, text, arguments) + "\n\n"
            for text, arguments in self._examples[:MAX_EXAMPLES]
        ]
        return (
            format_preamble()
            + "".join(examples)
            + format_example(tool, cut_request(request.text), begun)
        )

    async def _fill_list(self, slot: Slot, request: Request, given: dict[str, Any]) -> list[Any]:
        item = slot.item
        if item is None or item.kind not in ("string", "enum", "integer", "number"):
            return []
        runs = [run for run in read_lists(slot, request) if all(map(request.is_free, run[1]))]
        if runs:
            items, pieces = max(
                runs,
                key=lambda run: (-request.distance_to(run[1][0], slot.words), len(run[0])),
            )
            for piece in pieces:
                request.take(piece)
            return items
        if item.kind == "string":
            best = assign_values(rank_slots([item], request, self._slots)).get(item.name)
            offered = [best.value] if best is not None and best.value is not None else []
        else:
            offered = find_values(item, request)
        if not offered:
            return []
        chosen = offered[0] if len(offered) == 1 else None
        chosen = chosen or await self._ask(item, offered, request, given)
        request.take(chosen.span)
        return [chosen.value]

    async def _fill_object(self, slot: Slot, request: Request) -> dict[str, Any]:
        if not slot.schema.get("properties"):
            return {}
        inner = ArgumentFiller(self._powers, slot.name, slot.about, slot.schema)
        return await inner.fill_from(request)


def _find_unfilled(slots: Sequence[Slot], given: dict[str, Any]) -> list[Slot]:
    return [slot for slot in slots if slot.name not in given]


def _find_certain(
    slot: Slot, offered: list[Value], request: Request, unfilled: Sequence[Slot]
) -> Value | None:
    """Return the value that needs no model, or None.

    It is the only one, or the number that stands by the slot's own word.
    """
    if len(offered) == 1:
        return offered[0]
    if slot.kind in ("integer", "number") and offered:
        own = slot.words.difference(*(other.words for other in unfilled if other is not slot))
        near = [(request.distance_to(v.span, own, 3), v) for v in offered if v.span]
        best = min(gap for gap, _ in near)
        closest = [v for gap, v in near if gap == best]
        if best <= 3 and len(closest) == 1:
            return closest[0]
    return None


def _nearest(slot: Slot, offered: list[Value], request: Request) -> list[Value]:
    """Return the `MAX_OFFERED_VALUES` values nearest to the slot's words, in their order."""
    if len(offered) <= MAX_OFFERED_VALUES:
        return offered
    by_distance = sorted(range(len(offered)), key=lambda i: _distance(slot, offered[i], request))
    return [offered[i] for i in sorted(by_distance[:MAX_OFFERED_VALUES])]


def _distance(slot: Slot, value: Value, request: Request) -> int:
    return request.distance_to(value.span, slot.words, 8) if value.span else 0


def _grammar(slot: Slot, written: Sequence[str]) -> str:
    """Return the GBNF grammar of a value: one of those offered, or any of the slot's kind."""
    if written:
        return "root ::= " + " | ".join(_literal(text) for text in written)
    # What may follow a number ends it: without it the model could only go on with digits.
    if slot.kind == "integer":
        return 'root ::= "-"? [0-9]{1,6} [,}]'
    if slot.kind == "number":
        return 'root ::= "-"? [0-9]{1,6} ("." [0-9]{1,4})? [,}]'
    return 'root ::= "\\"" [^"\\\\\\x00-\\x1f]{0,60} "\\""'


class WithoutModel:
    """A stand-in for a model: it answers with the first text that is allowed."""

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        return first_allowed_text(grammar)

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        return [[1.0] for _ in texts]


def first_allowed_text(grammar: str) -> str:
    """Return the first of the texts that a grammar of this module lists, "" if it lists none."""
    listed = _FIRST_LITERAL.match(grammar)
    return str(parse_json(listed[1])) if listed else ""


_FIRST_LITERAL = re.compile(r'root ::= ("(?:[^"\\\\]|\\\\.)*")(?= \||$)')


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
