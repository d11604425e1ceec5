"""Which way calls are made, best first, and falling from one to the next.

    native        the provider's tools field
    constrained   tools in the system text, the reply forced by a JSON Schema
    text          tools in the system text, calls read out of the reply
    commands      back-ticked commands; only if asked for

A fall is an event that people see. Nothing is lost by it: every way takes the whole history on each ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message
from ferrule.models.dialects import Reader, Reading
from ferrule.models.wire import Capabilities, Exchange, ModelOptions, Sink, ToolSpec, Wire

from .commands import open_commands
from .reading import MAY_OPEN, PlainSink, reasoned, stop_of
from .text import Names, open_text

WAYS = ("native", "constrained", "text", "commands")
"""The ways, best first."""

_REFUSALS = ("tools_unsupported", "schema_unsupported")
"""Codes of a ProviderError that say: this way is closed, another may be open."""

Notice = Callable[[str, str], None]


def choose(capabilities: Capabilities) -> str:
    """The best way that a model is known to manage."""
    if capabilities.tools:
        return "native"
    return "constrained" if capabilities.structured else "text"


async def open_exchange(
    wire: Wire,
    way: str = "auto",
    system: str = "",
    tools: Sequence[ToolSpec] = (),
    options: ModelOptions | None = None,
    notice: Notice | None = None,
    *,
    native_fallback: str = "allow",
) -> tuple[Exchange, str]:
    """A conversation and the way in which calls are made in it.

    With `auto` the model's capabilities decide and a refusal falls to the next way; a way that is
    named is kept. Without tools it is `native` with none. `native_fallback` says what becomes of calls that a model
    writes as text in the native way: `allow`, `allow_once` or `reject`. `notice` hears of falls (topic
    `fallback`) where an ask has no sink. Raises ConfigError for an unknown way, ProviderError if the
    model cannot be asked what it can do.
    """
    if way not in ("auto", *WAYS):
        raise ConfigError(
            f"`{way}` is not a way to call tools", code="way", hint=f"one of auto, {', '.join(WAYS)}"
        )
    if native_fallback not in ("allow", "allow_once", "reject"):
        raise ConfigError(
            f"`{native_fallback}` says nothing about text-style calls", hint="allow, allow_once or reject"
        )
    settings = options or ModelOptions()
    if not tools:
        return wire.open(system, (), settings), "native"
    capabilities = await wire.capabilities() if way == "auto" else Capabilities()
    first = choose(capabilities) if way == "auto" else way
    left = [w for w in ("constrained", "text") if WAYS.index(w) > WAYS.index(first)] if way == "auto" else []
    if capabilities.structured is False:
        left = [w for w in left if w != "constrained"]
    ladder = LadderExchange(
        wire, system, tools, settings, [first, *left], notice, native_fallback=native_fallback
    )
    return ladder, first


class LadderExchange:
    """An `Exchange` that goes over to the next way when the provider refuses the one in use."""

    def __init__(
        self,
        wire: Wire,
        system: str,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        ways: Sequence[str],
        notice: Notice | None = None,
        *,
        native_fallback: str = "allow",
    ) -> None:
        self._wire = wire
        self._system = system
        self._tools = tools
        self._options = options
        self._ways = list(ways)
        self._notice = notice
        self._fallback = native_fallback
        self._exchange = self._open()
        self.notices: list[tuple[str, str]] = self._exchange.notices

    @cached_property
    def _names(self) -> Names:
        # Only an answer in which a call could be written as text needs them: they read every schema.
        return Names(self._tools)

    @property
    def way(self) -> str:
        """The way in use."""
        return self._ways[0]

    def _open(self) -> Exchange:
        given = (self._wire, self._system, self._tools, self._options)
        if self.way == "native":
            return self._wire.open(self._system, self._tools, self._options)
        if self.way == "constrained":
            from .constrained import open_constrained  # heavy: built only for models that need it

            return open_constrained(*given)
        return open_text(*given) if self.way == "text" else open_commands(*given)

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """See `Exchange.ask`. The answer's `way` says in which way it came."""
        while True:
            native = self._ways[0] == "native"
            reads = native and tools and schema is None
            try:
                if sink is not None and reads and self._fallback != "reject":
                    return await self._native(history, sink)
                answer = await self._exchange.ask(history, tools=tools, schema=schema, sink=sink)
            except ProviderError as error:
                if error.code not in _REFUSALS or len(self._ways) < 2:
                    raise
                self._fall(error, sink)
                continue
            # Nearly every answer has no character that could open a call, and goes on as it came.
            if not reads or not MAY_OPEN.search(answer.text):
                return answer
            return self._rejected(answer, sink) if self._fallback == "reject" else self._read(answer)

    def _fall(self, error: ProviderError, sink: Sink | None) -> None:
        before, kept = self.way, self.notices
        del self._ways[0]
        self._exchange = self._open()
        self.notices = self._exchange.notices
        self.notices.extend(kept)
        self._tell(sink, "fallback", f"{before} is refused ({error.detail}); going on with {self.way}")

    def _tell(self, sink: Sink | None, topic: str, text: str) -> None:
        if sink is not None:
            sink.notice(topic, text)
        elif self._notice is not None:
            self._notice(topic, text)
        else:
            self.notices.append((topic, text))

    async def _native(self, history: Sequence[Message], sink: Sink) -> ModelAnswered:
        """The provider's own answer, streamed; calls between marks in the text count too."""
        between = PlainSink(lambda: Reader(tools=self._names.schemas, marked=True), sink)
        answer = await self._exchange.ask(history, tools=True, sink=between)
        reading = between.finish(answer)
        return answer if reading is None else self._taken(answer, reading, sink)

    def _read(self, answer: ModelAnswered) -> ModelAnswered:
        """An answer in one piece, in which a mark could open."""
        between = PlainSink(lambda: Reader(tools=self._names.schemas, marked=True), None)
        reading = between.finish(answer)
        return answer if reading is None else self._taken(answer, reading, None)

    def _taken(self, answer: ModelAnswered, reading: Reading, sink: Sink | None) -> ModelAnswered:
        """The answer with the calls that were read out of its text, which is said."""
        if not reading.calls or answer.calls:
            plain = reading.text if not reading.calls else answer.text
            return replace(answer, text=plain, reasoning=reasoned(answer, reading))
        named = ", ".join(sorted({call.tool for call in reading.calls}))
        self._tell(sink, "native_tool_fallback", f"read from the text of a native answer: {named}")
        if self._fallback == "allow_once":
            self._fallback = "reject"
        return replace(
            answer,
            text=reading.text,
            calls=self._names.inward(reading.calls),
            reasoning=reasoned(answer, reading),
            stop=stop_of(answer, calls=True),
            way="text",
            raw=None,
        )

    def _rejected(self, answer: ModelAnswered, sink: Sink | None) -> ModelAnswered:
        reader = Reader(tools=self._names.schemas, marked=True)
        reader.feed(answer.text)
        if not answer.calls and reader.finish().calls:
            self._tell(sink, "native_tool_fallback", "calls in the text of a native answer were not run")
        return answer
