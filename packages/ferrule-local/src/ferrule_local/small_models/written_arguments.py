"""Arguments that a model writes which was taught to, beside those that rules find.

The model reads a request better than rules do, and makes things up: it garbles numbers, and fills
optional parameters that nobody spoke of. The rules (`argument_filling`) do neither, and miss what
is not said in the usual way. So both are asked. Where they differ, the model says how much likelier
it takes its own value than that of the rules, and its own is taken if that is much:

    both fill a parameter       the model's, if it is likelier by `MARGIN`; else that of the rules
    the model alone             the model's, if it is likelier by `MARGIN` than to leave it out, or
                                by a little less where the value stands in the request
    the rules alone             that of the rules

Members of objects are decided like parameters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from ferrule.core.calls import parse_json

from .call_format import (
    NO_CALL,
    CallableTool,
    build_arguments_grammar,
    build_text_grammar,
    render_member,
    render_prompt,
)
from .raw_model import ArgumentWriter
from .request import Request, cut_request

MAX_TOKENS = 300
"""Tokens of arguments; what is longer is cut off, and nothing of it is taken."""

MARGIN = 3.5
"""Difference of log probabilities from which the model's value is taken: 33 times as likely.

From 3 to 4.5 about as many calls of the development half are right; at 0 a tenth fewer.
"""

SAID_RELIEF = 1.5
"""By how much less the model must prefer a value that only it has, if the request has it, too.

Of 429 requests of development halves four more are right, and none is lost.
"""

Place = tuple[str, ...]
"""The name of a parameter, and those of the objects around it, the outermost first."""

MAX_SCORED = 400
"""Characters of a value that the model is asked about: each token takes it some 20 ms."""


class TaughtCall:
    """The arguments of one call, as a model that was taught to write them goes on with them."""

    def __init__(self, model: ArgumentWriter, tool: CallableTool, request: str) -> None:
        self._model = model
        self._tool = tool
        self._request = Request(cut_request(request))
        self._begun = render_prompt([tool], self._request.text)
        self._prompt = f"{self._begun} {tool.name}"

    async def measure_need(self) -> float:
        """Return by how much the model prefers to call the tool to calling none, as log odds."""
        return await self._score(f" {self._tool.name}") - await self._score(f" {NO_CALL}")

    async def fill(self, ruled: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments, from what the model writes and what the rules found."""
        written = await self.write()
        if written is None:
            return dict(ruled)
        return self.choose(written, ruled, await self.compare(written, ruled))

    async def write(self) -> dict[str, Any] | None:
        """Return the arguments that the model writes, None if they were cut off."""
        written = await self._model.write_arguments(
            self._prompt, grammar=build_arguments_grammar(self._tool), max_tokens=MAX_TOKENS
        )
        try:
            value = parse_json(written)
        except ValueError:
            return None
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    async def compare(
        self, written: Mapping[str, Any], ruled: Mapping[str, Any]
    ) -> dict[Place, float]:
        """Return by how much the model prefers what it wrote, where the rules say another thing.

        The figures are differences of log probabilities. What is too long to be scored is not
        preferred.
        """
        preferences: dict[Place, float] = {}
        for place in _find_differences(self._tool.schema, written, ruled):
            behind, own = _cut_at(self._tool.schema, place, written, written)
            _, other = _cut_at(self._tool.schema, place, written, ruled)
            behind = f" {self._tool.name}{behind}"
            preferences[place] = -math.inf
            if max(len(own), len(other)) <= MAX_SCORED:
                preferences[place] = await self._score(own, behind) - await self._score(
                    other, behind
                )
        return preferences

    def choose(
        self,
        written: Mapping[str, Any],
        ruled: Mapping[str, Any],
        preferences: Mapping[Place, float],
        margin: float = MARGIN,
    ) -> dict[str, Any]:
        """Return the arguments; `preferences` is what `compare` returns."""
        left = {
            place
            for place, lead in preferences.items()
            if lead + self._find_relief(place, written, ruled) <= margin
        }
        given = _merge(self._tool.schema, written, ruled, left)
        for name, value in given.items():
            others = [given[one] for one in given if one != name]
            if isinstance(value, str) and value != written.get(name, value) and value in others:
                # The model has this text in another place, so it has its own here.
                given[name] = written[name]
        return given

    def _find_relief(
        self, place: Place, written: Mapping[str, Any], ruled: Mapping[str, Any]
    ) -> float:
        is_alone = _find_value(place, ruled) is None
        return SAID_RELIEF if is_alone and self._is_said(_find_value(place, written)) else 0.0

    def _is_said(self, value: Any) -> bool:
        if isinstance(value, str):
            return value.casefold() in self._request.text.casefold()
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and self._request.says_number(value)

    async def _score(self, text: str, behind: str = "") -> float:
        return await self._model.score_arguments(
            self._begun + behind, text, grammar=build_text_grammar(text)
        )


def _find_differences(
    schema: Mapping[str, Any], written: Mapping[str, Any], ruled: Mapping[str, Any]
) -> Iterator[Place]:
    """Yield where both have another value, and where the model fills what is optional alone."""
    for name, value in written.items():
        if _is_object_of_both(schema, name, written, ruled):
            inner = _find_differences(schema["properties"][name], value, ruled[name])
            yield from ((name, *place) for place in inner)
        elif ruled[name] != value if name in ruled else name not in schema["required"]:
            yield (name,)


def _find_value(place: Place, arguments: Mapping[str, Any]) -> Any:
    *objects, last = place
    for name in objects:
        arguments = arguments.get(name) or {}
    return arguments.get(last)


def _is_object_of_both(
    schema: Mapping[str, Any], name: str, written: Mapping[str, Any], ruled: Mapping[str, Any]
) -> bool:
    has_properties = bool(schema["properties"][name].get("properties"))
    return has_properties and isinstance(ruled.get(name), dict) and isinstance(written[name], dict)


def _merge(
    schema: Mapping[str, Any],
    written: Mapping[str, Any],
    ruled: Mapping[str, Any],
    left: Collection[Place],
) -> dict[str, Any]:
    """Return what the model wrote but for some places, with the values of the rules there."""
    given: dict[str, Any] = {}
    for name, part in schema["properties"].items():
        if name in written and _is_object_of_both(schema, name, written, ruled):
            inner = {place[1:] for place in left if place[0] == name}
            given[name] = _merge(part, written[name], ruled[name], inner)
        elif name in written and (name,) not in left and written[name] != ruled.get(name):
            given[name] = written[name]
        elif name in ruled:
            given[name] = ruled[name]
    return given


def _cut_at(
    schema: Mapping[str, Any], place: Place, written: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[str, str]:
    """Return what the model wrote before a value, and the value with its end.

    The value, or that it is left out, comes from `values`, and all others from `written`.
    """
    name, *inner = place
    names = list(written)
    at = names.index(name)
    before = [render_member(schema, one, written[one]) for one in names[:at]]
    if inner:
        part = schema["properties"][name]
        known, rest = _cut_at(part, tuple(inner), written[name], values[name])
        opening = f" {{{', '.join([*before, json.dumps(name)])}:"
        return opening + known, rest
    own = [render_member(schema, name, values[name])] if name in values else []
    # What follows says where the value ends.
    after = [f"{json.dumps(one)}:" for one in names[at + 1 : at + 2]]
    text = f" {{{', '.join([*before, *own, *after])}{'' if after else '}'}"
    # Tokens reach across the end of a member, so its last character is scored as well.
    known = len(f" {{{', '.join(before)}") - 1 if before else 0
    return text[:known], text[known:]
