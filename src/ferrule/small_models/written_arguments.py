"""Arguments that a model writes which was taught to, beside those that rules find.

The model reads a request better than rules do, and makes things up: it garbles numbers, and fills
optional parameters that nobody spoke of. The rules (`argument_filling`) do neither, and miss what
is not said in the usual way. So both are asked. Where they differ, the model says how much likelier
it takes its own value than that of the rules, and its own is taken if that is much:

    both fill a parameter       the model's, if it is likelier by `MARGIN`; else that of the rules
    the model alone             the model's, if it is likelier by `MARGIN` than to leave it out
    the rules alone             that of the rules
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
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
from .request import cut_request

MAX_TOKENS = 300
"""Tokens of arguments; what is longer is cut off, and nothing of it is taken."""

MARGIN = 3.5
"""Difference of log probabilities from which the model's value is taken: 33 times as likely.

From 3 to 4.5 as many calls of the development half are right; at 0 a tenth fewer.
"""

MAX_SCORED = 400
"""Characters of a value that the model is asked about: each token takes it some 20 ms."""


class TaughtCall:
    """The arguments of one call, as a model that was taught to write them goes on with them."""

    def __init__(self, model: ArgumentWriter, tool: CallableTool, request: str) -> None:
        self._model = model
        self._tool = tool
        self._begun = render_prompt([tool], cut_request(request))
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
    ) -> dict[str, float]:
        """Return by how much the model prefers what it wrote, where the rules say another thing.

        The figures are differences of log probabilities, by parameter. What is too long to be
        scored is not preferred.
        """
        required = self._tool.schema["required"]
        preferences: dict[str, float] = {}
        for name, value in written.items():
            if ruled[name] == value if name in ruled else name in required:
                continue
            behind, own = self._place(name, written, written)
            _, other = self._place(name, written, ruled)
            preferences[name] = -math.inf
            if max(len(own), len(other)) <= MAX_SCORED:
                preferences[name] = await self._score(own, behind) - await self._score(
                    other, behind
                )
        return preferences

    def choose(
        self,
        written: Mapping[str, Any],
        ruled: Mapping[str, Any],
        preferences: Mapping[str, float],
        margin: float = MARGIN,
    ) -> dict[str, Any]:
        """Return the arguments; `preferences` is what `compare` returns."""
        given: dict[str, Any] = {}
        for name in self._tool.schema["properties"]:
            if name in written and preferences.get(name, math.inf) > margin:
                given[name] = written[name]
            elif name in ruled:
                given[name] = ruled[name]
        return given

    def _place(
        self, name: str, written: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Return what the model wrote before a parameter, and the parameter with its end.

        Its value, or that it is left out, comes from `values`, and all others from `written`.
        """
        names = list(written)
        at = names.index(name)
        before = [render_member(self._tool, one, written[one]) for one in names[:at]]
        own = [render_member(self._tool, name, values[name])] if name in values else []
        # What follows says where the value ends.
        after = [f"{json.dumps(one)}:" for one in names[at + 1 : at + 2]]
        text = f" {{{', '.join([*before, *own, *after])}{'' if after else '}'}"
        # Tokens reach across the end of a member, so its last character is scored as well.
        known = len(f" {{{', '.join(before)}") - 1 if before else 0
        return f" {self._tool.name}{text[:known]}", text[known:]

    async def _score(self, text: str, behind: str = "") -> float:
        return await self._model.score_arguments(
            self._begun + behind, text, grammar=build_text_grammar(text)
        )
