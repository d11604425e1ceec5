"""The models `provider:model`: one answer of a model to a client that runs its tools itself.

No agent works and no tool of this machine is involved: the client's messages and tools go to the
model through `models.tool_modes.selection`, in the tool mode that the model supports: its
provider's tools field, a constrained reply, or text. So a model that was never trained to call
tools calls those of the client. The answer is a call for the client to make; nothing runs here, so
there is nothing for the gate to decide or the journal to keep.

A required call (`tool_choice`) is first asked for like any other; if none comes, the model is asked
again in the constrained mode, with a schema that allows only calls. A reply with a schema that may
also be a call takes two requests if no call comes: first with the tools, then with the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.value_class import frozen
from ferrule.models.client import Exchange, ModelClient, ModelOptions, Sink
from ferrule.models.tool_modes.constrained import (
    ConstrainedExchange,
    constrained_prompt,
    reply_schema,
)
from ferrule.models.tool_modes.selection import open_exchange

from .answer_parts import AnswerEnd, CallsPiece, Emit, TextPiece, ThinkingPiece
from .errors import redact
from .requests import ChatRequest

_FINISH = {"end": "stop", "calls": "tool_calls", "length": "length", "filter": "content_filter"}


@dataclass(slots=True)
class ModelRelay:
    """One question of a client to a model.

    `way` is the tool mode that the server's owner set for this model.
    """

    client: ModelClient
    tool_mode: str
    options: ModelOptions
    request: ChatRequest
    emit: Emit
    notices: list[str] = field(default_factory=list[str])
    usage: Usage = field(default_factory=Usage)

    async def answer(self) -> AnswerEnd:
        """Return the model's answer. Raises ProviderError, ConfigError."""
        answer = await self._answer()
        if answer.calls:
            kept = answer.calls if self.request.parallel else answer.calls[:1]
            self.emit(
                CallsPiece(tuple(_with_id(call, kept[:place]) for place, call in enumerate(kept)))
            )
        more: dict[str, Any] = {"tool_mode": answer.tool_mode}
        if self.notices:
            more["notices"] = [redact(text) for text in self.notices]
        stop = "calls" if answer.calls else answer.stop
        return AnswerEnd(_FINISH[stop], self.usage, more)  # pyright: ignore[reportArgumentType]  a table of literals

    async def _answer(self) -> ModelAnswered:
        asked = self.request
        exchange, _ = await open_exchange(
            self.client,
            self.tool_mode,
            asked.messages.system,
            asked.tools,
            self.options,
            self._notice,
        )
        tools = bool(asked.tools) and asked.may_call
        if not tools or not (asked.must_call or asked.schema is not None):
            return await self._ask(
                exchange, tools=tools, schema=asked.schema, sink=_StreamingSink(self)
            )
        # Not streamed, because the answer may have to be discarded.
        answer = await self._ask(exchange, tools=True)
        if answer.calls:
            self._emit_answer(answer)
            return answer
        if asked.must_call:
            return await self._ask_for_calls()
        return await self._ask(
            exchange, tools=False, schema=asked.schema, sink=_StreamingSink(self)
        )

    async def _ask(
        self,
        exchange: Exchange,
        *,
        tools: bool,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        answer = await exchange.ask(
            self.request.messages.history, tools=tools, schema=schema, sink=sink
        )
        self.usage += answer.usage
        self.notices += [text for _, text in exchange.notices]
        exchange.notices.clear()
        return answer

    async def _ask_for_calls(self) -> ModelAnswered:
        """Ask for a reply that can only be calls."""
        asked = self.request
        system = "\n\n".join(filter(None, (asked.messages.system, constrained_prompt(asked.tools))))
        plain, _ = await open_exchange(
            self.client, "native", system, (), self.options, self._notice
        )
        exchange = ConstrainedExchange(plain, asked.tools)
        answer = await self._ask(
            exchange, tools=False, schema=_calls_only(reply_schema(asked.tools))
        )
        calls = _read_calls(answer.text, {spec.api_name for spec in asked.tools})
        if not calls and answer.stop != "length":
            raise ProviderError(
                f"{self.client.model} made no call where one is required", code="no_call"
            )
        return replace(answer, text="", calls=calls, raw=None)

    def _emit_answer(self, answer: ModelAnswered) -> None:
        if answer.reasoning:
            self.emit(ThinkingPiece(answer.reasoning))
        if answer.text:
            self.emit(TextPiece(answer.text))

    def _notice(self, topic: str, text: str) -> None:
        self.notices.append(text)


@frozen
class _StreamingSink:
    """A sink whose text goes to the client as it comes."""

    relay: ModelRelay

    def add_text(self, piece: str) -> None:
        self.relay.emit(TextPiece(piece))

    def add_reasoning(self, piece: str) -> None:
        self.relay.emit(ThinkingPiece(piece))

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        """Leave it out: clients get each call when it is complete."""

    def notice(self, topic: str, text: str) -> None:
        self.relay.notices.append(text)


def _with_id(call: ToolCall, before: tuple[ToolCall, ...]) -> ToolCall:
    """Return a call with an id, by which clients know their calls."""
    known = {one.id for one in before}
    return (
        call if call.id and call.id not in known else replace(call, id=f"call_{uuid4().hex[:24]}")
    )


def _calls_only(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a reply (`reply_schema`) without the form that is a text answer."""
    reply = schema["properties"]["reply"]
    forms = [form for form in reply["anyOf"] if "calls" in form["properties"]]
    return {**schema, "properties": {"reply": {**reply, "anyOf": forms}}}


def _read_calls(text: str, names: set[str]) -> tuple[ToolCall, ...]:
    """Return the calls of such a reply; none if it is incomplete or has another form."""
    try:
        made = json.loads(text)["reply"]["calls"]
        return tuple(
            ToolCall("", one["tool"], encode_json(one["arguments"]))
            for one in made
            if one["tool"] in names
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
