"""Which way calls are made, best first, and falling from one to the next.

    native        the provider's tools field
    constrained   tools in the system text, the reply forced by a JSON Schema
    text          tools in the system text, calls read out of the reply
    commands      back-ticked commands; only if asked for

A fall is an event that people see. Nothing is lost by it: every way takes the whole history on each
ask. Most conversations are native, so the other ways, and what reads calls out of text, are loaded
when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message
from ferrule.models.client import Capabilities, Exchange, ModelOptions, Sink, ToolSpec, Wire
from ferrule.models.reasoning_models import starts_thinking
from ferrule.models.untrusted_text import SPELLED_TOOLS, SpellingExchange, spell_out

from .live_probe import probe_tools, refuses_tools
from .reply_reader import MAY_CALL, MAY_OPEN, PlainSink, reasoned, stop_of

if TYPE_CHECKING:
    from ferrule.models.dialects import Reader, Reading

    from .text import Names

WAYS = ("native", "constrained", "text", "commands")
"""The ways, best first."""

_REFUSALS = ("tools_unsupported", "schema_unsupported")
"""Codes of a ProviderError that say: this way is closed, another may be open."""

Notice = Callable[[str, str], None]


def choose(capabilities: Capabilities) -> str:
    """Return the best way that a model may manage: unknown means native, which is what a refusal
    tells us most about.
    """
    if capabilities.tools is not False:
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
    named is kept. Without tools it is `native` with none. What others may have written is spelled
    out (`models.untrusted_text`): this is where every conversation with a model is opened.
    `native_fallback` says what becomes of calls that a model writes as text in the native way:
    `allow`, `allow_once` or `reject`. `notice` hears of falls (topic `fallback`) where an ask has
    no sink. Raises ConfigError for an unknown way, ProviderError if the model cannot be asked what
    it can do.
    """
    if way not in ("auto", *WAYS):
        raise ConfigError(
            f"`{way}` is not a way to call tools",
            code="way",
            hint=f"one of auto, {', '.join(WAYS)}",
        )
    if native_fallback not in ("allow", "allow_once", "reject"):
        raise ConfigError(
            f"`{native_fallback}` says nothing about text-style calls",
            hint="allow, allow_once or reject",
        )
    settings = options or ModelOptions()
    tokens = not getattr(wire, "encodes_text", False)
    system = spell_out(system, tokens=tokens)
    if not tools:
        return SpellingExchange(wire.open(system, (), settings), tokens=tokens), "native"
    tools = SPELLED_TOOLS.of(tools, tokens=tokens)
    capabilities = await wire.capabilities() if way == "auto" else Capabilities()
    unsure = way == "auto" and capabilities.tools is None
    first = choose(capabilities) if way == "auto" else way
    left = (
        [w for w in ("constrained", "text") if WAYS.index(w) > WAYS.index(first)]
        if way == "auto"
        else []
    )
    if capabilities.structured is False:
        left = [w for w in left if w != "constrained"]
    ladder = LadderExchange(
        wire,
        system,
        tools,
        settings,
        [first, *left],
        notice,
        native_fallback=native_fallback,
        unsure=unsure,
    )
    return SpellingExchange(ladder, tokens=tokens), first


class LadderExchange:
    """An `Exchange` that goes over to the next way when the provider refuses the one in use.

    `unsure`: nobody said whether this model takes tools. Until it has called one, an answer without
    a call may mean that the tools never reached it; then it is probed, once (`live_probe`).
    """

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
        unsure: bool = False,
    ) -> None:
        self._unsure = unsure
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
        # Only an answer in which a call could be written as text needs them: they read every
        # schema.
        from .text import Names

        return Names(self._tools)

    @cached_property
    def _thinking(self) -> bool:
        return starts_thinking(self._wire.model)

    @property
    def way(self) -> str:
        """The way in use."""
        return self._ways[0]

    def _open(self) -> Exchange:
        given = (self._wire, self._system, self._tools, self._options)
        if self.way == "native":
            return self._wire.open(self._system, self._tools, self._options)
        if self.way == "constrained":
            from .constrained import open_constrained

            return open_constrained(*given)
        if self.way == "text":
            from .text import open_text

            return open_text(*given)
        from .commands import open_commands

        return open_commands(*given)

    def _reader(self) -> Reader:
        from ferrule.models.dialects import Reader

        return Reader(tools=self._names.schemas, marked=True, thinking=self._thinking)

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
                    answer = await self._native(history, sink)
                else:
                    answer = await self._exchange.ask(
                        history, tools=tools, schema=schema, sink=sink
                    )
                    # Nearly every answer has no character that could open a call, and goes on as it
                    # came.
                    if reads and MAY_OPEN.search(answer.text):
                        reject = self._fallback == "reject"
                        answer = self._rejected(answer, sink) if reject else self._read(answer)
            except ProviderError as error:
                if len(self._ways) < 2 or not self._closed(error):
                    raise
                self._fall(f"is refused ({error.detail})", sink)
                continue
            if native and self._unsure and tools and await self._ignored(answer, sink):
                return await self._anew(history, answer, schema, sink)
            if not reads or answer.calls or answer.stop != "end":
                return answer
            if answer.text and (self._fallback == "reject" or not MAY_CALL.search(answer.text)):
                return answer
            return await self._again(history, answer, sink)

    def _closed(self, error: ProviderError) -> bool:
        """Whether this error says that the way in use is closed."""
        if error.code in _REFUSALS:
            return True
        if self.way == "native" and self._unsure:
            return refuses_tools(error)
        # Not every server that takes no schema finds the words for it.
        return self.way == "constrained" and error.code in ("http_400", "http_422")

    async def _ignored(self, answer: ModelAnswered, sink: Sink | None) -> bool:
        """Whether this answer has no call because the tools never reached the model."""
        if answer.calls:
            self._unsure = False
            return False
        if answer.stop != "end" or len(self._ways) < 2:
            return False
        try:
            able = await probe_tools(self._wire, self._options)
        except ProviderError as error:
            self._tell(
                sink,
                "fallback",
                f"whether tools reach the model could not be found out: {error.detail}",
            )
            return False
        self._unsure = False
        return not able

    async def _anew(
        self,
        history: Sequence[Message],
        answer: ModelAnswered,
        schema: Mapping[str, Any] | None,
        sink: Sink | None,
    ) -> ModelAnswered:
        """The answer in the next way. What was said without the tools was heard, and is left
        out.
        """
        self._fall("is ignored: the model was asked to call a tool and did not", sink)
        if sink is not None and answer.text:
            sink.text("\n\n")
        again = await self.ask(history, schema=schema, sink=sink)
        return replace(again, usage=answer.usage + again.usage)

    async def _again(
        self, history: Sequence[Message], answer: ModelAnswered, sink: Sink | None
    ) -> ModelAnswered:
        """The answer, after a second question where it is empty or has a call in its words
        (`second_try`).
        """
        from . import second_try

        tool = second_try.in_words(answer, self._names) if answer.text else ""
        if answer.text and not tool:
            return answer
        topic, why = (
            ("native_tool_fallback", second_try.told_of(tool))
            if tool
            else ("retry", second_try.EMPTY)
        )
        self._tell(sink, topic, why)
        try:
            if tool:
                return await self._told(second_try.told(history, answer, tool), answer, sink)
            again = await self._exchange.ask(history)
        except ProviderError as error:
            self._tell(sink, topic, f"that failed, so the answer stands: {error.detail}")
            return answer
        if self._fallback != "reject" and MAY_OPEN.search(again.text):
            again = self._read(again)
        if sink is not None and again.text:
            sink.text(again.text)
        return replace(again, usage=answer.usage + again.usage)

    async def _told(
        self, question: Sequence[Message], answer: ModelAnswered, sink: Sink | None
    ) -> ModelAnswered:
        from .second_try import joined

        # An exchange of its own: the session's takes a history that only grows, and this question
        # is no part of it.
        aside = self._open()
        said = await aside.ask(question)
        for topic, text in aside.notices:
            self._tell(sink, topic, text)
        if sink is not None and said.calls and said.text:
            sink.text(f"\n\n{said.text}")
        return joined(answer, said)

    def _fall(self, why: str, sink: Sink | None) -> None:
        before, kept = self.way, self.notices
        del self._ways[0]
        self._exchange = self._open()
        self.notices = self._exchange.notices
        self.notices.extend(kept)
        self._tell(sink, "fallback", f"{before} {why}; going on with {self.way}")

    def _tell(self, sink: Sink | None, topic: str, text: str) -> None:
        if sink is not None:
            sink.notice(topic, text)
        elif self._notice is not None:
            self._notice(topic, text)
        else:
            self.notices.append((topic, text))

    async def _native(self, history: Sequence[Message], sink: Sink) -> ModelAnswered:
        """The provider's own answer, streamed; calls between marks in the text count too."""
        between = PlainSink(self._reader, sink, thinking=self._thinking)
        answer = await self._exchange.ask(history, tools=True, sink=between)
        reading = between.finish(answer)
        return answer if reading is None else self._taken(answer, reading, sink)

    def _read(self, answer: ModelAnswered) -> ModelAnswered:
        """An answer in one piece, in which a mark could open."""
        between = PlainSink(self._reader, None)
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
        reader = self._reader()
        reader.feed(answer.text)
        if not answer.calls and reader.finish().calls:
            self._tell(
                sink, "native_tool_fallback", "calls in the text of a native answer were not run"
            )
        return answer
