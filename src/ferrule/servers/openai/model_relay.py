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

from ferrule.core.calls import Call, compact
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.models.client import Exchange, ModelOptions, Sink, Wire
from ferrule.models.tool_modes.constrained import (
    ConstrainedExchange,
    constrained_prompt,
    reply_schema,
)
from ferrule.models.tool_modes.selection import open_exchange

from .answer_parts import Calls, Emit, Ended, Thoughts, Words
from .errors import redacted
from .requests import Asked

_FINISH = {"end": "stop", "calls": "tool_calls", "length": "length", "filter": "content_filter"}


@dataclass(slots=True)
class Loan:
    """One question of a client to a model.

    `way` is the tool mode that the server's owner set for this model.
    """

    wire: Wire
    way: str
    options: ModelOptions
    asked: Asked
    emit: Emit
    notices: list[str] = field(default_factory=list[str])
    usage: Usage = field(default_factory=Usage)

    async def work(self) -> Ended:
        """Return the model's answer. Raises ProviderError, ConfigError."""
        answer = await self._answer()
        if answer.calls:
            kept = answer.calls if self.asked.parallel else answer.calls[:1]
            self.emit(Calls(tuple(_named(call, kept[:place]) for place, call in enumerate(kept))))
        more: dict[str, Any] = {"way": answer.way}
        if self.notices:
            more["notices"] = [redacted(text) for text in self.notices]
        stop = "calls" if answer.calls else answer.stop
        return Ended(_FINISH[stop], self.usage, more)  # pyright: ignore[reportArgumentType]  a table of literals

    async def _answer(self) -> ModelAnswered:
        asked = self.asked
        exchange, _ = await open_exchange(
            self.wire, self.way, asked.told.system, asked.tools, self.options, self._notice
        )
        tools = bool(asked.tools) and asked.may
        if not tools or not (asked.must or asked.schema is not None):
            return await self._ask(exchange, tools=tools, schema=asked.schema, sink=_Speaking(self))
        # Not streamed, because the answer may have to be discarded.
        answer = await self._ask(exchange, tools=True)
        if answer.calls:
            self._say(answer)
            return answer
        if asked.must:
            return await self._forced()
        return await self._ask(exchange, tools=False, schema=asked.schema, sink=_Speaking(self))

    async def _ask(
        self,
        exchange: Exchange,
        *,
        tools: bool,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        answer = await exchange.ask(self.asked.told.history, tools=tools, schema=schema, sink=sink)
        self.usage += answer.usage
        self.notices += [text for _, text in exchange.notices]
        exchange.notices.clear()
        return answer

    async def _forced(self) -> ModelAnswered:
        """Ask for a reply that can only be calls."""
        asked = self.asked
        system = "\n\n".join(filter(None, (asked.told.system, constrained_prompt(asked.tools))))
        plain, _ = await open_exchange(self.wire, "native", system, (), self.options, self._notice)
        exchange = ConstrainedExchange(plain, asked.tools)
        answer = await self._ask(
            exchange, tools=False, schema=_calls_only(reply_schema(asked.tools))
        )
        calls = _read(answer.text, {spec.wire_name for spec in asked.tools})
        if not calls and answer.stop != "length":
            raise ProviderError(
                f"{self.wire.model} made no call where one is required", code="no_call"
            )
        return replace(answer, text="", calls=calls, raw=None)

    def _say(self, answer: ModelAnswered) -> None:
        if answer.reasoning:
            self.emit(Thoughts(answer.reasoning))
        if answer.text:
            self.emit(Words(answer.text))

    def _notice(self, topic: str, text: str) -> None:
        self.notices.append(text)


@dataclass(frozen=True, slots=True)
class _Speaking:
    """A sink whose text goes to the client as it comes."""

    loan: Loan

    def text(self, piece: str) -> None:
        self.loan.emit(Words(piece))

    def reasoning(self, piece: str) -> None:
        self.loan.emit(Thoughts(piece))

    def notice(self, topic: str, text: str) -> None:
        self.loan.notices.append(text)


def _named(call: Call, before: tuple[Call, ...]) -> Call:
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


def _read(text: str, names: set[str]) -> tuple[Call, ...]:
    """Return the calls of such a reply; none if it is incomplete or has another form."""
    try:
        made = json.loads(text)["reply"]["calls"]
        return tuple(
            Call("", one["tool"], compact(one["arguments"])) for one in made if one["tool"] in names
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
