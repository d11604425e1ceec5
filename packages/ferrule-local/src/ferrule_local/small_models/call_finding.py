"""The calls that a message asks for: one decision at a time.

The tools are ranked (`tool_choice`); no tool is a choice, by enough of a margin (`abstention`). The
arguments of the chosen one are filled from the pieces of the request (`argument_filling`), and a
model that was taught to writes them (`written_arguments`). A message is cut where one order ends
and the next begins, and what names several sets of values is written out (`repeated_calls`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.value_class import frozen
from ferrule.models.client import Sink, ToolSpec
from ferrule.models.tool_modes.text import parameter_schema

from .abstention import is_called_for, split_request, unquote
from .action_check import (
    find_opening_order,
    find_order_for,
    find_problem,
    is_only_asked_about,
    may_change,
    speaks_of_files,
    spell_out,
)
from .argument_filling import ArgumentFiller, WithoutModel
from .call_format import CallableTool
from .raw_model import ArgumentWriter, RawModel
from .repeated_calls import find_repeated_requests
from .request import Request
from .tool_choice import ToolOffer
from .tool_ranking import ToolRanking, example_requests
from .written_arguments import TaughtCall

MAX_CALLS = 3
"""Calls for one message."""


class CallFinder:
    """Finds the calls of messages, one after the other.

    Attributes:
        question: What the person is asked, because something is ordered and unclear; else "".
    """

    def __init__(self, model: RawModel, tools: Sequence[ToolSpec]) -> None:
        self._model = model
        self._specs = {spec.api_name: spec for spec in tools}
        self._ranking = ToolRanking(model, tools)
        self._parts: list[_Part] = []
        self._calls_made = 0
        self.question = ""

    @property
    def left(self) -> list[str]:
        """What of the message is not done."""
        return [part.text for part in self._parts]

    async def begin(self, text: str, sink: Sink | None) -> None:
        """Read a message."""
        self._parts = await self._find_parts(text, sink)
        self._calls_made = 0
        self.question = ""

    async def _find_parts(self, text: str, sink: Sink | None) -> list[_Part]:
        """Return the parts of a message that may ask for a call.

        Parts that are for the same tool are left together where they are one request that is made
        several times: the later ones leave out what was said.
        """
        whole = unquote(text)
        parts = [spell_out(part) for part in split_request(whole)]
        if len(parts) > 1:
            best = [await self._find_best(part, sink) for part in parts]
            first = best[0] if all(offer is best[0] for offer in best) else None
            if first is not None and len(await self._find_repeated(first, whole)) > 1:
                return [_Part(whole)]
        return [_Part(part) for part in parts]

    async def _find_best(self, text: str, sink: Sink | None) -> ToolOffer | None:
        ranked = await self._ranking.rank(Request(text), sink)
        return next((offer for _, offer in ranked if offer is not None), None)

    async def _find_repeated(self, offer: ToolOffer, text: str) -> list[str]:
        spec = self._specs[offer.name]
        schema = parameter_schema(spec)
        return await find_repeated_requests(
            text, spec.api_name, spec.description, schema, offer.slots
        )

    async def next_call(self, sink: Sink | None) -> ToolCall | None:
        """Return the call for the next part of the message; None if no part is left that needs one.

        A part that names no path and speaks of `it` is about the path that was named before.
        """
        while self._parts and self._calls_made < MAX_CALLS:
            part = self._parts.pop(0)
            if part.tool is None:
                call = await self._choose_call(part.text, sink)
            else:
                call = await self._make_call_of(part.tool, Request(part.text), is_repeated=True)
            if call is not None:
                self._calls_made += 1
                return call
        return None

    async def _choose_call(self, text: str, sink: Sink | None) -> ToolCall | None:
        """Return the call that a request asks for; None if it asks for words.

        A tool that changes something, and is not asked for, is passed over.
        """
        request = Request(text)
        ranked = await self._ranking.rank(request, sink)
        talk = next(score for score, offer in ranked if offer is None)
        offers = [
            (score, offer)
            for score, offer in ranked
            if offer is not None and not is_only_asked_about(self._specs[offer.name], request)
        ]
        for offer in self._find_ordered(offers, request):
            call = await self._make_first_call(offer, request)
            if call is not None:
                return call
        if self.question:
            return None  # It was ordered and is unclear: nothing else is called in its place.
        for score, offer in offers:
            if may_change(self._specs[offer.name]):
                call = await self._make_first_call(offer, request)
                if call is not None:
                    return call
            elif await self._is_called_for(offer, request, score, talk):
                return await self._make_first_call(offer, request)
            elif not any(atom.kind == "path" for atom in request.atoms):
                return None  # With a path, the next tool may take it.
        return None

    async def _is_called_for(
        self, offer: ToolOffer, request: Request, score: float, talk: float
    ) -> bool:
        taught = self._begin_taught_call(self._specs[offer.name], request.text)
        need = await taught.measure_need() if taught is not None else None
        return is_called_for(request, offer, score, talk, need)

    def _find_ordered(
        self, offers: Sequence[tuple[float, ToolOffer]], request: Request
    ) -> list[ToolOffer]:
        """Return the tools that do what the request begins by ordering.

        `Make a file a.txt ...` is for a tool that writes, whatever reads files and fits as well.
        Only reading gives way, and only where a path is named.
        """
        names_path = any(
            atom.kind == "path" or atom.text.lower() in ("called", "named")
            for atom in request.atoms
        )
        if not offers or not names_path or self._specs[offers[0][1].name].side_effect != "read":
            return []
        return [
            offer for _, offer in offers if find_opening_order(self._specs[offer.name], request)
        ]

    async def _make_first_call(self, offer: ToolOffer, request: Request) -> ToolCall | None:
        """Return the call of a tool, or the first of several that a request asks for.

        The others are kept for the turns that follow.
        """
        spec = self._specs[offer.name]
        if may_change(spec) and find_order_for(spec, request) is None:
            return None
        several = await self._find_repeated(offer, request.text)
        if len(several) == 1:
            return await self._make_call_of(offer, request)
        call = await self._make_call_of(offer, Request(several[0]), is_repeated=True)
        if call is not None:
            self._parts[:0] = [_Part(text, offer) for text in several[1:]]
        return call

    async def _make_call_of(
        self, offer: ToolOffer, request: Request, *, is_repeated: bool = False
    ) -> ToolCall | None:
        """Return the call of a tool; None if it changes something without a clear order.

        If it is ordered and not clear, a question is kept for the person. `is_repeated` says that
        the rules wrote the request out of one that asks for several calls.
        """
        spec = self._specs[offer.name]
        if may_change(spec) and find_order_for(spec, request) is None:
            return None
        arguments = await self._fill_arguments(spec, request.text, is_repeated)
        if not may_change(spec):
            return ToolCall("", spec.name, encode_json(arguments))
        problem = find_problem(spec, offer.slots, arguments, request)
        if not problem:
            return ToolCall("", spec.name, encode_json(arguments))
        if speaks_of_files(request):
            self.question = self.question or f"I did not call `{spec.name}`: {problem}."
        return None

    async def _fill_arguments(self, spec: ToolSpec, text: str, is_repeated: bool) -> dict[str, Any]:
        schema = parameter_schema(spec)
        examples = _example_arguments(spec)
        # The rules found the values of a repeated request.
        taught = None if is_repeated else self._begin_taught_call(spec, text)
        rules_model = self._model if taught is None else WithoutModel()
        filler = ArgumentFiller(rules_model, spec.api_name, spec.description, schema, examples)
        ruled = await filler.fill(text)
        if taught is not None and schema.get("properties"):
            return _drop_refused(await taught.fill(ruled), schema)
        return _drop_refused(ruled, schema)

    def _begin_taught_call(self, spec: ToolSpec, text: str) -> TaughtCall | None:
        """Return a call for the model to write; None if it was not taught to write this one.

        Of example requests it knows nothing; the rules go by them.
        """
        model = self._model
        if not isinstance(model, ArgumentWriter) or not model.writes_arguments:
            return None
        if example_requests(spec):
            return None
        tool = CallableTool(spec.api_name, spec.description, parameter_schema(spec))
        return TaughtCall(model, tool, text)


@frozen
class _Part:
    """A part of a message that asks for a call: its text, and the tool if that is known."""

    text: str
    tool: ToolOffer | None = None


def _example_arguments(spec: ToolSpec) -> list[tuple[str, str]]:
    return [
        (request, encode_json(dict(arguments))) for request, arguments in example_requests(spec)
    ]


def _drop_refused(arguments: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without optional ones that the schema refuses.

    A required one that is wrong stays: the dispatcher's answer says what is the matter with it, as
    it does where the schema itself is broken.
    """
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(dict(schema))
    except (ValueError, jsonschema_rs.ValidationError):
        return arguments
    required = cast("Sequence[str]", schema.get("required") or ())
    for error in list(validator.iter_errors(arguments)):
        name = error.instance_path[0] if error.instance_path else None
        if isinstance(name, str) and name not in required:
            arguments.pop(name, None)
    return arguments
