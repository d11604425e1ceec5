"""Open a conversation in the best tool mode a model can manage, and fall back to the next one.

    native        the provider's tools field
    constrained   tools in the system text, the reply forced by a JSON Schema
    text          tools in the system text, calls read out of the reply
    commands      commands in back-ticks; only if asked for

A fallback is reported as a notice. Nothing is lost by it: every mode takes the whole history on
each ask. Most conversations are native, so the other modes, and what reads calls out of text, are
loaded when they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.messages import Message
from ferrule.models import dialects
from ferrule.models.capabilities import starts_in_reasoning
from ferrule.models.client import (
    Capabilities,
    Exchange,
    HasToolModes,
    ModelClient,
    ModelOptions,
    Sink,
    ToolBounds,
    ToolModeOpener,
    ToolSpec,
)
from ferrule.models.registry import find_provider, find_tool_bounds
from ferrule.models.untrusted_text import ESCAPED_TOOLS, EscapingExchange, escape_untrusted
from ferrule.tools.forking import cached_property

from .live_probe import is_refusal_of_tools, note_native_call, probe_tools
from .reading_sinks import (
    COULD_OPEN_MARK,
    LazyReadingSink,
    join_reasoning,
    stop_reason,
)

if TYPE_CHECKING:
    from ferrule.models.dialects import Reading

    from .text import ToolNames

TOOL_MODES = ("native", "constrained", "text", "commands")
"""The tool modes, best first."""

_REFUSALS = ("tools_unsupported", "schema_unsupported")
"""Codes of a ProviderError that rule out the tool mode in use, but perhaps not the next one."""

Notice = Callable[[str, str], None]
"""Takes the topic and the text of a notice."""


def choose_tool_mode(capabilities: Capabilities) -> str:
    """Return the best tool mode a model may manage.

    Where nobody knows whether the model takes tools, this is `native`: its refusal says most.
    """
    if capabilities.tools is not False:
        return "native"
    return "constrained" if capabilities.structured else "text"


def explain_tool_mode(capabilities: Capabilities) -> str:
    """Return why `choose_tool_mode` chooses as it does, as a sentence for people."""
    source = capabilities.source
    if capabilities.tools:
        return f"the model calls tools (source: {source})"
    if capabilities.tools is None:
        return (
            "nobody says whether the model calls tools, so they are sent; should it refuse or "
            "never see them, the next mode is taken and you are told"
        )
    if capabilities.structured:
        return f"the model calls no tools, but its replies can be forced by a schema ({source})"
    return f"the model calls no tools, and no schema forces its replies ({source})"


async def open_exchange(
    client: ModelClient,
    tool_mode: str = "auto",
    system: str = "",
    tools: Sequence[ToolSpec] = (),
    options: ModelOptions | None = None,
    notice: Notice | None = None,
    *,
    native_fallback: str = "allow",
) -> tuple[Exchange, str]:
    """Open a conversation, and return it with the tool mode it begins in.

    Every conversation with a model is opened here, so that what others may have written is spelled
    out in all of them (`models.untrusted_text`).

    Args:
        client: The model client.
        tool_mode: A tool mode, which is kept, or `auto`: then the model's capabilities decide, and
            a refusal falls back to the next mode. Without tools the mode is always `native`.
        system: The system text.
        tools: The tools on offer.
        options: Options of the model; the defaults if None.
        notice: Hears of fallbacks (topic `fallback`) where an ask has no sink.
        native_fallback: What becomes of calls that a model writes as text in the native mode:
            `allow` runs them, `allow_once` runs those of the first such answer, `reject` runs none.

    Raises:
        ConfigError: If `tool_mode` or `native_fallback` is none of these.
        ProviderError: If the model cannot be asked for its capabilities.
    """
    if tool_mode not in ("auto", *TOOL_MODES):
        raise ConfigError(
            f"`{tool_mode}` is not a tool mode",
            code="tool_mode",
            hint=f"use one of auto, {', '.join(TOOL_MODES)}",
        )
    if native_fallback not in ("allow", "allow_once", "reject"):
        raise ConfigError(
            f"`{native_fallback}` is no value of `native_fallback`",
            hint="use allow, allow_once or reject",
        )
    settings = options or ModelOptions()
    tokens = not getattr(client, "encodes_text", False)
    system = escape_untrusted(system, tokens=tokens)
    if not tools:
        plain = PlainExchange(client.open(system, (), settings), client.model)
        return EscapingExchange(plain, tokens=tokens), "native"
    tools = ESCAPED_TOOLS.escape_tools(tools, tokens=tokens)
    modes = [tool_mode]
    unsure = False
    if tool_mode == "auto":
        capabilities = await client.capabilities()
        modes = _modes_to_try(capabilities)
        unsure = capabilities.tools is None
    exchange = FallbackExchange(
        client,
        system,
        tools,
        settings,
        modes,
        notice,
        native_fallback=native_fallback,
        unsure=unsure,
    )
    return EscapingExchange(exchange, tokens=tokens), modes[0]


def _find_opener(client: ModelClient, tool_mode: str) -> ToolModeOpener:
    """Return what opens a tool mode. Only the module of the one that is needed is loaded."""
    if isinstance(client, HasToolModes) and tool_mode in client.tool_modes:
        return client.tool_modes[tool_mode]
    if tool_mode == "native":
        return _open_native
    if tool_mode == "constrained":
        from .constrained import open_constrained

        return open_constrained
    if tool_mode == "text":
        from .text import open_text

        return open_text
    from .commands import open_commands

    return open_commands


def _open_native(
    client: ModelClient, system: str, tools: Sequence[ToolSpec], options: ModelOptions
) -> Exchange:
    return client.open(system, tools, options)


def _modes_to_try(capabilities: Capabilities) -> list[str]:
    """Return the tool mode to begin with and those to fall back to."""
    first = choose_tool_mode(capabilities)
    fallbacks = [
        mode for mode in ("constrained", "text") if TOOL_MODES.index(mode) > TOOL_MODES.index(first)
    ]
    if capabilities.structured is False:
        fallbacks = [mode for mode in fallbacks if mode != "constrained"]
    return [first, *fallbacks]


class PlainExchange:
    """An `Exchange` without tools: thoughts that a server leaves in the text are reasoning."""

    def __init__(self, inner: Exchange, model: str) -> None:
        self._inner = inner
        self._model = model
        self.notices: list[tuple[str, str]] = inner.notices

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """Ask the model; see `Exchange.ask`."""
        if schema is not None:
            return await self._inner.ask(history, tools=tools, schema=schema, sink=sink)
        return await _ask_for_prose(self._inner, history, self._model, sink, tools=tools)


async def _ask_for_prose(
    exchange: Exchange,
    history: Sequence[Message],
    model: str,
    sink: Sink | None,
    *,
    tools: bool = False,
) -> ModelAnswered:
    """Ask where no call is read out of the text, and set the thoughts in it apart."""

    def make_reader() -> dialects.ReplyReader:
        return dialects.ReplyReader((), fenced=False, marked=True, thinking=thinking)

    thinking = starts_in_reasoning(model)
    is_streamed = sink is not None
    reading_sink = LazyReadingSink(make_reader, sink, thinking=thinking and is_streamed)
    answer = await exchange.ask(history, tools=tools, sink=reading_sink if is_streamed else None)
    reading = reading_sink.finish(answer)
    if reading is None:
        return answer
    return replace(answer, text=reading.text, reasoning=join_reasoning(answer, reading))


class FallbackExchange:
    """An `Exchange` that falls back to the next tool mode when the provider refuses one."""

    def __init__(
        self,
        client: ModelClient,
        system: str,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        modes: Sequence[str],
        notice: Notice | None = None,
        *,
        native_fallback: str = "allow",
        unsure: bool = False,
    ) -> None:
        """Open the first of the tool modes.

        Args:
            client: The model client.
            system: The system text.
            tools: The tools on offer.
            options: Options of the model.
            modes: The tool modes, in the order in which they are tried.
            notice: Hears of fallbacks where an ask has no sink.
            native_fallback: See `open_exchange`.
            unsure: Whether nobody said that this model takes tools. Until it has called one, an
                answer without a call may mean that the tools never reached it; then it is probed,
                once (`live_probe`).
        """
        self._unsure = unsure
        self._client = client
        self._system = system
        self._tools = tools
        self._options = options
        self._modes = list(modes)
        self._notice = notice
        self._fallback = native_fallback
        self._exchange = self._open()
        self.notices: list[tuple[str, str]] = self._exchange.notices
        if self.tool_mode == "native":
            self._keep_within(find_tool_bounds(client))

    def _keep_within(self, bounds: ToolBounds) -> None:
        """Shorten descriptions, and leave out tools, that the provider would refuse.

        Tools of servers are left out first. Deferred ones do not count: a search finds them.
        """
        from .refused_tools import choose_excess, shorten_descriptions

        if bounds.description is not None:
            self._tools, shortened = shorten_descriptions(self._tools, bounds.description)
            if shortened:
                self._exchange = self._open()
                most = f"{bounds.description:,} characters"
                text = f"{_list_names(shortened)} described in {most}, as the provider takes them"
                self._notify(None, "tools", text)
        loaded = [tool for tool in self._tools if not tool.deferred]
        if bounds.tools is not None and len(loaded) > bounds.tools:
            excess = choose_excess(loaded, bounds.tools)
            self._leave_out(excess)
            text = f"{_list_names(excess)} left out: the provider takes {bounds.tools} tools"
            self._notify(None, "tools", text)

    @cached_property
    def _names(self) -> ToolNames:
        # Only an answer in which a call could be written as text needs them: they read every
        # schema.
        from .text import ToolNames

        return ToolNames(self._tools)

    @cached_property
    def _offered(self) -> frozenset[str]:
        names = {tool.name for tool in self._tools}
        return frozenset(names.union(tool.api_name for tool in self._tools))

    @cached_property
    def _thinking(self) -> bool:
        return starts_in_reasoning(self._client.model)

    def _may_be_thought(self) -> bool:
        """Whether text without any mark is the thought that the model's prompt has opened.

        Servers that people run themselves often hand it on as text.
        """
        row = find_provider(self._client.model)
        runs_here = row is not None and row.runs_here
        return self._thinking and runs_here and self._options.thinking is not False

    @property
    def tool_mode(self) -> str:
        """The tool mode in use."""
        return self._modes[0]

    def _open(self) -> Exchange:
        """Open a conversation in the tool mode in use."""
        open_mode = _find_opener(self._client, self.tool_mode)
        return open_mode(self._client, self._system, self._tools, self._options)

    def _reader(self) -> dialects.ReplyReader:
        return dialects.ReplyReader(tools=self._names.schemas, marked=True, thinking=self._thinking)

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """Ask the model in the tool mode in use; fall back to the next one if it is refused.

        See `Exchange.ask`. The answer's `way` is the tool mode it came in.
        """
        while True:
            native = self.tool_mode == "native"
            reads_text = native and tools and schema is None
            try:
                if reads_text and sink is not None and self._fallback != "reject":
                    answer = await self._ask_streaming(history, sink)
                elif native and not tools and schema is None:
                    answer = await _ask_for_prose(self._exchange, history, self._client.model, sink)
                else:
                    answer = await self._exchange.ask(
                        history, tools=tools, schema=schema, sink=sink
                    )
                    if reads_text:
                        answer = self._read_calls(answer, sink)
                answer = self._clean(answer)
            except ProviderError as error:
                if native and tools and self._leave_out_refused(error, sink):
                    continue
                if len(self._modes) < 2 or not self._rules_out_mode(error):
                    raise
                self._fall_back(f"is refused ({error.detail})", sink)
                continue
            if native and tools and self._unsure and await self._are_tools_ignored(answer, sink):
                return await self._ask_in_next_mode(history, answer, schema, sink)
            if reads_text and self._needs_second_try(answer):
                return await self._try_again(history, answer, sink)
            return answer

    async def _ask_streaming(self, history: Sequence[Message], sink: Sink) -> ModelAnswered:
        """Ask in the native mode, and take the calls that stand between marks in the text."""
        reading_sink = LazyReadingSink(self._reader, sink, thinking=self._thinking)
        answer = await self._exchange.ask(history, tools=True, sink=reading_sink)
        reading = reading_sink.finish(answer)
        return answer if reading is None else self._take_calls(answer, reading, sink)

    def _read_calls(self, answer: ModelAnswered, sink: Sink | None) -> ModelAnswered:
        """Take the calls that stand between marks in the text of an answer."""
        # Nearly every answer has no character that could open a call, and goes on as it came.
        if not COULD_OPEN_MARK.search(answer.text):
            return answer
        if self._fallback == "reject":
            return self._reject_calls(answer, sink)
        return self._read_whole(answer)

    def _read_whole(self, answer: ModelAnswered) -> ModelAnswered:
        """Read the calls out of an answer that was not streamed and in which a mark could open."""
        reading_sink = LazyReadingSink(self._reader, None)
        reading = reading_sink.finish(answer)
        return answer if reading is None else self._take_calls(answer, reading, None)

    def _take_calls(
        self, answer: ModelAnswered, reading: Reading, sink: Sink | None
    ) -> ModelAnswered:
        """Return the answer with the calls that were read out of its text, and say so."""
        reasoning = join_reasoning(answer, reading)
        if not reading.calls:
            return replace(answer, text=reading.text, reasoning=reasoning)
        if answer.calls:
            return replace(answer, reasoning=reasoning)
        named = ", ".join(sorted({call.tool for call in reading.calls}))
        self._notify(
            sink, "native_tool_fallback", f"read from the text of a native answer: {named}"
        )
        if self._fallback == "allow_once":
            self._fallback = "reject"
        return replace(
            answer,
            text=reading.text,
            calls=self._names.to_full_names(reading.calls),
            reasoning=reasoning,
            stop=stop_reason(answer, calls=True),
            tool_mode="text",
            raw=None,
        )

    def _reject_calls(self, answer: ModelAnswered, sink: Sink | None) -> ModelAnswered:
        """Return the answer as it is, and say so if its text holds calls."""
        reader = self._reader()
        reader.feed(answer.text)
        if not answer.calls and reader.finish().calls:
            self._notify(
                sink, "native_tool_fallback", "calls in the text of a native answer were not run"
            )
        return answer

    # ---- falling back

    def _leave_out_refused(self, error: ProviderError, sink: Sink | None) -> bool:
        """Leave out the tools that a refusal is about. Return whether there are any."""
        if error.status not in (400, 422):
            return False
        from .refused_tools import find_refused_tools

        refused = find_refused_tools(error, self._tools)
        if not refused:
            return False
        self._leave_out(refused)
        self._notify(sink, "tools", f"{_list_names(refused)} left out: {error.detail}")
        return True

    def _leave_out(self, refused: Sequence[ToolSpec]) -> None:
        """Go on in the same tool mode without these tools."""
        names = {tool.name for tool in refused}
        self._tools = [tool for tool in self._tools if tool.name not in names]
        self.__dict__.pop("_names", None)
        pending = self.notices
        self._exchange = self._open()
        self.notices = self._exchange.notices
        self.notices.extend(pending)

    def _clean(self, answer: ModelAnswered) -> ModelAnswered:
        """Take away what servers leave of a model's format: around names of tools, and thoughts."""
        if answer.stop == "length" and not answer.reasoning and self._may_be_thought():
            answer = replace(answer, text="", reasoning=answer.text)
        if self.tool_mode != "native" or all(call.tool in self._offered for call in answer.calls):
            return answer
        calls = tuple(
            replace(call, tool=_find_name(call.tool, self._offered)) for call in answer.calls
        )
        return answer if calls == answer.calls else replace(answer, calls=calls)

    def _rules_out_mode(self, error: ProviderError) -> bool:
        """Return whether an error says that the tool mode in use does not work."""
        if error.code in _REFUSALS:
            return True
        if self.tool_mode == "native" and self._unsure:
            from .refused_tools import is_about_number

            return is_refusal_of_tools(error) and not is_about_number(error)
        # Not every server that takes no schema says so in its error.
        return self.tool_mode == "constrained" and error.code in ("http_400", "http_422")

    async def _are_tools_ignored(self, answer: ModelAnswered, sink: Sink | None) -> bool:
        """Return whether an answer has no call because the tools never reached the model."""
        if answer.calls:
            self._unsure = False
            if answer.tool_mode == "native":
                note_native_call(self._client)
            return False
        if answer.stop != "end" or len(self._modes) < 2:
            return False
        try:
            calls_tools = await probe_tools(self._client, self._options)
        except ProviderError as error:
            self._notify(
                sink,
                "fallback",
                f"whether tools reach the model could not be found out: {error.detail}",
            )
            return False
        self._unsure = False
        return not calls_tools

    async def _ask_in_next_mode(
        self,
        history: Sequence[Message],
        answer: ModelAnswered,
        schema: Mapping[str, Any] | None,
        sink: Sink | None,
    ) -> ModelAnswered:
        """Ask again in the next mode, and return the better answer.

        The first answer stands if the second has no call either, streamed or not: nobody reads two
        answers to one question. An answer by a schema is asked for in every mode anew.
        """
        self._fall_back("is ignored: the model was asked to call a tool and did not", sink)
        may_stand = schema is None and bool(answer.text)
        again = await self.ask(history, schema=schema, sink=None if may_stand else sink)
        usage = answer.usage + again.usage
        while may_stand and sink is not None and self.notices:
            sink.notice(*self.notices.pop(0))
        if may_stand and not again.calls:
            return replace(answer, usage=usage, tool_mode=again.tool_mode, raw=None)
        if may_stand and sink is not None and again.text:
            sink.add_text(f"\n\n{again.text}")
        return replace(again, usage=usage)

    def _fall_back(self, why: str, sink: Sink | None) -> None:
        """Open the next tool mode, and say why."""
        before = self.tool_mode
        pending = self.notices
        del self._modes[0]
        self._exchange = self._open()
        self.notices = self._exchange.notices
        self.notices.extend(pending)
        text = f"the tool mode {before} {why}; continuing with {self.tool_mode}"
        self._notify(sink, "fallback", text)

    # ---- second tries

    def _needs_second_try(self, answer: ModelAnswered) -> bool:
        """Return whether an answer is empty, or may have a call without marks in its text."""
        if answer.calls or answer.stop != "end":
            return False
        if not answer.text:
            return True
        return self._fallback != "reject" and ("{" in answer.text or "(" in answer.text)

    async def _try_again(
        self, history: Sequence[Message], answer: ModelAnswered, sink: Sink | None
    ) -> ModelAnswered:
        """Return the answer, after a second question where it needs one (`reprompting`)."""
        from . import reprompting

        tool = reprompting.find_call_in_text(answer, self._names) if answer.text else ""
        if tool:
            topic, notice = "native_tool_fallback", reprompting.describe_unrun_call(tool)
        elif answer.text:
            return answer
        else:
            topic, notice = "retry", reprompting.EMPTY_ANSWER
        self._notify(sink, topic, notice)
        try:
            if tool:
                question = reprompting.build_second_question(history, answer, tool)
                second = await self._ask_aside(question, sink)
                return reprompting.join_answers(answer, second)
            again = await self._exchange.ask(history)
        except ProviderError as error:
            self._notify(sink, topic, f"that failed, so the answer stands: {error.detail}")
            return answer
        if self._fallback != "reject" and COULD_OPEN_MARK.search(again.text):
            again = self._read_whole(again)
        if sink is not None and again.text:
            sink.add_text(again.text)
        return replace(again, usage=answer.usage + again.usage)

    async def _ask_aside(self, question: Sequence[Message], sink: Sink | None) -> ModelAnswered:
        """Ask a question that is no part of the session, in an exchange of its own.

        The session's own exchange takes a history that only grows.
        """
        aside = self._open()
        answer = await aside.ask(question)
        for topic, text in aside.notices:
            self._notify(sink, topic, text)
        if sink is not None and answer.calls and answer.text:
            sink.add_text(f"\n\n{answer.text}")
        return answer

    def _notify(self, sink: Sink | None, topic: str, text: str) -> None:
        """Give a notice to the sink, else to whoever hears of fallbacks, else keep it."""
        if sink is not None:
            sink.notice(topic, text)
        elif self._notice is not None:
            self._notice(topic, text)
        else:
            self.notices.append((topic, text))


_AROUND_NAMES = compile_lazily(
    r"\A\s*(?:(?:functions|default_api|tools)[.:])?([\w.:-]+?)(?:\s*<[|｜].*)?\s*\Z", re.DOTALL
)
"""What stands around a tool's name where a server did not read its model's format to the end."""


def _find_name(written: str, offered: frozenset[str]) -> str:
    """Return the offered tool that a name with remains of a format means; else the name."""
    found = None if written in offered else _AROUND_NAMES.match(written)
    return found[1] if found is not None and found[1] in offered else written


_SHOWN_NAMES = 8


def _list_names(tools: Sequence[ToolSpec]) -> str:
    """Return the names of tools for a notice, and whether it is one or several."""
    shown = ", ".join(f"`{tool.name}`" for tool in tools[:_SHOWN_NAMES])
    if len(tools) > _SHOWN_NAMES:
        shown += f" and {len(tools) - _SHOWN_NAMES} more"
    return f"{shown} {'is' if len(tools) == 1 else 'are'}"
