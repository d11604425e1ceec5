"""Ranks the tools of a conversation: `tool_choice` with the vectors of a model client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from ferrule.models.client import Sink, ToolSpec
from ferrule.models.tool_modes.text import parameter_schema

from .raw_model import RawModel
from .request import Request
from .slots import read_slots
from .tool_choice import LearnedWeights, ToolChooser, ToolOffer, request_prompt

SILENT_SECONDS = 1.0
"""How long tools are read before the person is told."""

READING_TOOLS = "reading the tools' descriptions: a minute or so, once"

MAX_LEARNED = 8
"""Sets of tools that are remembered for a model client."""

_LEARNED: WeakKeyDictionary[RawModel, dict[tuple[str, ...], LearnedWeights]] = WeakKeyDictionary()
"""What choosers learned, by model client.

A session, and a program that opens many of them, computes it once for a set of tools.
"""


class ToolRanking:
    """The tools of a conversation, ranked for each request."""

    def __init__(self, model: RawModel, tools: Sequence[ToolSpec]) -> None:
        self._model = model
        self._chooser = ToolChooser([_offer(spec) for spec in tools])

    def list_prompts(self) -> tuple[str, ...]:
        """Return the texts that the model reads before it ranks for the first time."""
        return tuple(self._chooser.prompts())

    async def rank(
        self, request: Request, sink: Sink | None
    ) -> list[tuple[float, ToolOffer | None]]:
        """Return the tools with their scores, best first; None stands for an answer in words."""
        if not self._chooser.is_ready:
            await self._prepare(sink)
        vectors = await self._model.embed([request_prompt(request.text)])
        return self._chooser.rank(request, vectors[0])

    async def _prepare(self, sink: Sink | None) -> None:
        """Let the chooser learn, unless this model client had the same tools before."""
        prompts = self.list_prompts()
        known = _LEARNED.setdefault(self._model, {})
        if prompts not in known:
            vectors = await self._embed_tools(prompts, sink)
            learned = self._chooser.compute_weights(vectors)
            while len(known) >= MAX_LEARNED:
                known.pop(next(iter(known)), None)
            known[prompts] = learned
        self._chooser.use_weights(known[prompts])

    async def _embed_tools(self, prompts: Sequence[str], sink: Sink | None) -> list[list[float]]:
        """Return the vectors of the tools, and say so if they are not at hand."""
        if sink is None:
            return await self._model.embed(prompts, keep=True)
        loop = asyncio.get_running_loop()
        saying = loop.call_later(SILENT_SECONDS, sink.notice, "model", READING_TOOLS)
        try:
            return await self._model.embed(prompts, keep=True)
        finally:
            saying.cancel()


def _offer(spec: ToolSpec) -> ToolOffer:
    requests = tuple(request for request, _ in example_requests(spec))
    return ToolOffer(
        spec.api_name, spec.description, tuple(read_slots(parameter_schema(spec))), requests
    )


def example_requests(spec: ToolSpec) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a tool's example requests with their arguments.

    These are its examples of the shape `{"request": "...", "arguments": {...}}`.
    """
    found: list[tuple[str, Mapping[str, Any]]] = []
    for example in spec.examples:
        request, arguments = example.get("request"), example.get("arguments")
        if isinstance(request, str) and isinstance(arguments, Mapping):
            found.append((request, cast("Mapping[str, Any]", arguments)))
    return found
