"""Requests with their calls, as they were written, and the variations of them that are learned.

A line of a file of `requests` is `{"functions": [...], "asks": [{"request": ..., "calls": [...]}]}`.
Every line was written for this training. Lines that share a function's name, or eight words in a row,
with an entry of the Berkeley leaderboard that is evaluated (either half) are left out.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import bfcl

from ferrule_local.small_models.call_format import CallableTool, render_calls, render_prompt

HERE = Path(__file__).parent
PHRASE_WORDS = 8
SHOWN_TOOLS = 4
"""Of more than these a variation shows a few."""


Ask = tuple[str, list[dict[str, Any]]]
"""A request, and the calls that it asks for."""


class Row(NamedTuple):
    """The functions that are offered, and requests for them."""

    functions: list[dict[str, Any]]
    asks: list[Ask]

    def render(self) -> tuple[str, list[tuple[str, str]]]:
        """Return the tools as they are shown, and each request with its calls."""
        tools = [
            CallableTool(one["name"], one["description"], one["parameters"])
            for one in self.functions
        ]
        asks: list[tuple[str, str]] = []
        head = ""
        for request, calls in self.asks:
            prompt = render_prompt(tools, request)
            head = prompt[: prompt.rindex("\n\nRequest:") + len("\n\nRequest:")]
            made = [(call["name"], call["arguments"]) for call in calls]
            asks.append((prompt.removeprefix(head), render_calls(tools, made)))
        return head, asks


def read_rows() -> list[Row]:
    """Return all that was written, without what is held out."""
    names, phrases = _held_out()
    found: list[Row] = []
    for file in sorted((HERE / "requests").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if names & {_plain(one["name"]) for one in row["functions"]}:
                continue
            asks = [(ask["request"], ask["calls"]) for ask in row["asks"]]
            asks = [ask for ask in asks if not phrases & _phrases(ask[0])]
            if asks:
                found.append(Row(row["functions"], asks))
    return found


def _held_out() -> tuple[set[str], set[str]]:
    """Return the names of functions, and the phrases, of every entry that is evaluated."""
    names: set[str] = set()
    phrases: set[str] = set()
    for category in bfcl.CATEGORIES.values():
        for half in ("development", "reported"):
            for entry in bfcl.entries(bfcl.wheel(), category, half):
                names |= {_plain(one["name"]) for one in entry["functions"]}
                phrases |= _phrases(entry["request"])
    return names, phrases


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _phrases(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    last = len(words) - PHRASE_WORDS
    return {" ".join(words[at : at + PHRASE_WORDS]) for at in range(last + 1)}


def keep_apart(
    rows: Sequence[Row], rng: random.Random, share: float
) -> tuple[list[Row], list[Row]]:
    """Return a share of the functions with their requests, and the rest, which is learned."""
    heads = sorted({row.functions[0]["name"] for row in rows})
    rng.shuffle(heads)
    apart = set(heads[: int(len(heads) * share)])
    return (
        [row for row in rows if row.functions[0]["name"] in apart],
        [row for row in rows if row.functions[0]["name"] not in apart],
    )


class Variation:
    """Draws variations of rows: other values, other functions beside, other names and orders."""

    def __init__(self, rows: Sequence[Row], rng: random.Random) -> None:
        self._rng = rng
        named = {function["name"]: function for row in rows for function in row.functions}
        self._functions = list(named.values())
        self._values = _collect_values(rows)

    def vary(self, row: Row) -> Iterator[Row]:
        """Yield variations of a row: one, or several of a toolbox, each with a few requests."""
        rng = self._rng
        asks = list(row.asks)
        rng.shuffle(asks)
        if len(row.functions) <= SHOWN_TOOLS:
            functions = copy.deepcopy(row.functions)
            chance = rng.random()
            if len(functions) <= 2 and chance < 0.25:
                functions += self._draw(rng.choice([1, 1, 2, 3]), functions)
            elif 0.25 <= chance < 0.29:  # None of these fits.
                others = self._draw(rng.choice([1, 1, 2, 3]), functions)
                if others:
                    functions, asks = others, [(request, []) for request, _ in asks[:2]]
            yield self._finish(functions, asks)
            return
        while asks:
            count = rng.choice([2, 3, 3, 4])
            some, asks = asks[:count], asks[count:]
            is_whole = len(row.functions) <= 12 and rng.random() < 0.35
            functions = row.functions if is_whole else self._cut_offer(row.functions, some)
            yield self._finish(copy.deepcopy(functions), some)

    def _finish(self, functions: list[dict[str, Any]], asks: list[Ask]) -> Row:
        varied = [
            self._exchange_values(functions, request, copy.deepcopy(calls))
            if self._rng.random() < 0.6
            else (request, copy.deepcopy(calls))
            for request, calls in asks
        ]
        self._rng.shuffle(functions)
        for function in functions:
            self._change_function(
                function, functions, [call for _, calls in varied for call in calls]
            )
        return Row(functions, varied)

    def _exchange_values(
        self, functions: list[dict[str, Any]], request: str, calls: list[dict[str, Any]]
    ) -> tuple[str, list[dict[str, Any]]]:
        """Put other values where a value stands once in the request and once in the calls."""
        places = [(call, *place) for call in calls for place in _places(call, functions)]
        encoded = [json.dumps(value) for _, _, value, _ in places]
        for call, path, value, schema in places:
            if encoded.count(json.dumps(value)) > 1 or "enum" in schema or self._rng.random() < 0.3:
                continue
            if isinstance(value, str):
                new, said = self._other_text(path, value, request), value
            elif isinstance(value, bool) or not isinstance(value, int | float):
                continue
            else:
                said = str(value)
                new = self._other_number(value, schema)
            found = list(re.finditer(rf"(?<![\w.,:/-]){re.escape(said)}(?!\w|[.,:/-]\d)", request))
            if new is None or str(new) in request or len(found) != 1 or request.count(said) != 1:
                continue
            request = request[: found[0].start()] + str(new) + request[found[0].end() :]
            _put(call["arguments"], path, new)
        return request, calls

    def _other_text(self, path: Sequence[Any], value: str, request: str) -> str | None:
        known = self._values.get(_parameter_of(path), [])
        if len(value) < 2 or len(known) < 4:
            return None
        alike = [
            one
            for one in known
            if one != value and one not in request and _shape(one) == _shape(value)
        ]
        return self._rng.choice(alike) if alike else None

    def _other_number(self, value: float, schema: dict[str, Any]) -> float | None:
        text = str(value)
        if re.fullmatch(r"(19|20)\d\d", text):
            return self._rng.randint(1900, 2030)
        first = next((at for at, mark in enumerate(text) if mark.isdigit()), 0)
        digits = [
            str(self._rng.randint(at == first, 9)) if mark.isdigit() else mark
            for at, mark in enumerate(text)
        ]
        try:
            new = type(value)("".join(digits))
        except ValueError:
            return None
        is_allowed = schema.get("minimum", new) <= new <= schema.get("maximum", new)
        return new if is_allowed and str(new) == "".join(digits) else None

    def _cut_offer(
        self, functions: list[dict[str, Any]], asks: Sequence[Ask]
    ) -> list[dict[str, Any]]:
        """Leave what a ranker would: the functions that are called, and some that are near."""
        used = {call["name"] for _, calls in asks for call in calls}
        others = [one for one in functions if one["name"] not in used]
        self._rng.shuffle(others)
        if self._rng.random() < 0.5:
            said = _words(" ".join([*(request for request, _ in asks), *used]))
            others.sort(key=lambda one: -len(said & _words(f"{one['name']} {one['description']}")))
        count = self._rng.choice([2, 3, 4, 4, 5])
        kept = [one for one in functions if one["name"] in used]
        return kept + others[: max(1, count - len(used))]

    def _draw(self, count: int, without: list[dict[str, Any]]) -> list[dict[str, Any]]:
        drawn = {one["name"]: one for one in self._rng.choices(self._functions, k=count)}
        names = {one["name"] for one in without}
        return [copy.deepcopy(one) for name, one in drawn.items() if name not in names]

    def _change_function(
        self,
        function: dict[str, Any],
        functions: list[dict[str, Any]],
        calls: list[dict[str, Any]],
    ) -> None:
        rng = self._rng
        properties = cast("dict[str, Any]", function["parameters"].get("properties") or {})
        if properties and rng.random() < 0.35:
            names = list(properties)
            rng.shuffle(names)
            function["parameters"]["properties"] = {name: properties[name] for name in names}
        if rng.random() < 0.04:
            for part in properties.values():
                part.pop("description", None)
        name = self._restyle(function["name"])
        if name not in {one["name"] for one in functions}:
            for call in calls:
                if call["name"] == function["name"]:
                    call["name"] = name
            function["name"] = name

    def _restyle(self, name: str) -> str:
        """Return a name in another style of those that programmers use."""
        parts = [part for part in re.split(r"[._\-]|(?<=[a-z0-9])(?=[A-Z])", name) if part]
        chance = self._rng.random()
        if len(parts) < 2 or chance > 0.2:
            return name
        low = [part.lower() for part in parts]
        if chance < 0.08:
            return "_".join(low)
        if chance < 0.14:
            return low[0] + "".join(part[:1].upper() + part[1:] for part in parts[1:])
        return f"{low[0]}.{'_'.join(low[1:])}"


def _collect_values(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the texts that were copied from requests, by the name of their parameter."""
    found: dict[str, set[str]] = {}
    asked = [(row.functions, *ask) for row in rows for ask in row.asks]
    for functions, request, calls in asked:
        for call in calls:
            for path, value, schema in _places(call, functions):
                is_copied = isinstance(value, str) and 1 < len(value) <= 60 and value in request
                if is_copied and "enum" not in schema and not {"'", '"'} & set(value):
                    found.setdefault(_parameter_of(path), set()).add(value)
    return {name: sorted(values) for name, values in found.items()}


def _places(
    call: dict[str, Any], functions: list[dict[str, Any]]
) -> Iterator[tuple[tuple[Any, ...], Any, dict[str, Any]]]:
    """Yield path, value and schema of every plain value of a call."""
    schema = next(one["parameters"] for one in functions if one["name"] == call["name"])
    yield from _inner_places(call["arguments"], schema, ())


def _inner_places(
    value: Any, schema: dict[str, Any], path: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], Any, dict[str, Any]]]:
    if isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            part = (schema.get("properties") or {}).get(name, {})
            yield from _inner_places(inner, part, (*path, name))
    elif isinstance(value, list):
        items = schema.get("items")
        for at, inner in enumerate(cast("list[Any]", value)):
            yield from _inner_places(inner, items if isinstance(items, dict) else {}, (*path, at))
    else:
        yield path, value, schema


def _put(arguments: Any, path: Sequence[Any], value: Any) -> None:
    for step in path[:-1]:
        arguments = arguments[step]
    arguments[path[-1]] = value


def _parameter_of(path: Sequence[Any]) -> str:
    return str([step for step in path if isinstance(step, str)][-1]).lower().rstrip("s")


def _shape(text: str) -> tuple[bool, ...]:
    return (text[:1].isupper(), bool(re.search(r"\d", text)), "/" in text, text.isascii())


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower().replace("_", " ")))
