"""The `constrained` tool mode for models too small to plan: one step at a time.

    what the model is asked        how it answers
    a message, with tools          with a call, if one is asked for (`call_finding`). A tool that
                                   changes something is called only if the message orders it
                                   (`action_check`); if it is ordered and unclear, the person is
                                   asked
    results, and the message said  with the next call, up to `MAX_CALLS`
    more
    tool results                   with the model's own words, bounded, if they say something that
                                   stands in the results. The results themselves follow, so that the
                                   answer holds the fact whatever the words are. A failure is
                                   reported as it is: a small model would call it a success
    no tools, or a schema          as the model does by itself

No call depends on what a result says: whoever needs that uses a larger model.

Context windows are small too: the conversation before is cut to `MAX_REMEMBERED` characters, a
result to `MAX_READ`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast, runtime_checkable

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import (
    Capabilities,
    Exchange,
    ModelClient,
    ModelOptions,
    Sink,
    ToolSpec,
    choose_notice,
)
from ferrule.models.tool_modes.plain_history import render_results
from ferrule.tools.word_stems import content_stems

from .call_finding import MAX_CALLS, CallFinder
from .raw_model import RawModel

MAX_READ = 1200
"""Characters of results that the model reads."""

MAX_SHOWN = 2000
"""Characters of a result that is shown below the model's words."""

MAX_REMEMBERED = 3000
"""Characters of the conversation before."""

MAX_SENTENCE = 60
"""Tokens of the model's own words about a result."""

WITHOUT_REPETITION = {
    "dry_multiplier": 0.8,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "repeat_penalty": 1.1,
}
"""llama.cpp's samplers against what was said before, for answers in words: DRY and a penalty."""


def open_small_model_exchange(
    client: ModelClient, system: str, tools: Sequence[ToolSpec], options: ModelOptions
) -> Exchange:
    """Open a conversation with a small model, in place of the `constrained` tool mode. No I/O.

    The manifest names this function for the provider `local`.

    Raises:
        ConfigError: The client cannot do what the help needs (`argument_filling.RawModel`).
    """
    if not isinstance(client, SmallModelClient):
        raise ConfigError(
            f"`{client.model}` cannot be helped as a small model: its client completes no raw "
            "prompts",
            code="tool_mode",
            hint="leave its `tool_modes` out",
        )
    return SmallModelExchange(client, system, tools, options)


@runtime_checkable
class SmallModelClient(RawModel, Protocol):
    """The model client of a small model, with what else it can do."""

    @property
    def model(self) -> str: ...
    async def capabilities(self) -> Capabilities: ...
    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange: ...
    async def close(self) -> None: ...


class SmallModelExchange:
    """An `Exchange` that divides a turn into small decisions, for a small model."""

    def __init__(
        self,
        client: SmallModelClient,
        system: str,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._client = client
        self._system = system
        self._calls = CallFinder(client, tools) if tools else None
        self._options = replace(
            options,
            temperature=0.0 if options.temperature is None else options.temperature,
            max_tokens=options.max_tokens or 160,
        )

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """Ask the model; see `Exchange.ask`."""
        last = history[-1] if history else UserMessage("")
        if tools and schema is None and self._calls is not None:
            answer = await self._ask_for_call(self._calls, last, sink)
            if answer is not None:
                return answer
        if schema is None and isinstance(last, ToolMessage):
            return await self._report_results(history, sink)
        return await self._answer_in_words(history, schema, sink)

    async def _ask_for_call(
        self, calls: CallFinder, last: Message, sink: Sink | None
    ) -> ModelAnswered | None:
        """Return the next call, or a question about an unclear one; None for an answer in words."""
        if isinstance(last, UserMessage):
            await calls.begin(last.text, sink)
        elif not (isinstance(last, ToolMessage) and last.success):
            return None
        call = await calls.next_call(sink)
        if call is not None:
            return ModelAnswered("", (call,), stop="calls", tool_mode="constrained")
        if calls.question and isinstance(last, UserMessage):
            return _ask_back(calls.question, sink)
        return None

    async def _report_results(self, history: Sequence[Message], sink: Sink | None) -> ModelAnswered:
        """Answer with what the results say: in the model's words, then as they are."""
        results = _last_results(history)
        request = next((m.text for m in reversed(history) if isinstance(m, UserMessage)), "")
        cut = [replace(r, text=_cut(r.text, MAX_READ // len(results))) for r in results]
        question = UserMessage(
            f"{_cut(request, MAX_READ)}\n\n{render_results(cut)}\n\nAnswer in one sentence."
        )
        answer = ModelAnswered()
        if all(result.success for result in results):
            one_sentence = replace(self._options, max_tokens=MAX_SENTENCE, stop=("\n",))
            answer = await self._open(one_sentence).ask([question], tools=False)
        said = answer.text.strip()
        if not _is_grounded(said, request, results) or _is_copied(said, results):
            said = ""
        parts = [said, *(_quote(result, said) for result in results)]
        left = self._calls.left if self._calls is not None else []
        if left and all(result.success for result in results):
            listed = "; ".join(left)
            parts.append(f"Not done, as one message makes {MAX_CALLS} calls at most: {listed}")
        text = "\n\n".join(part for part in parts if part)
        if sink is not None:
            sink.add_text(text)
        return replace(answer, text=text, stop="end", tool_mode="constrained")

    async def _answer_in_words(
        self,
        history: Sequence[Message],
        schema: Mapping[str, Any] | None,
        sink: Sink | None,
    ) -> ModelAnswered:
        if schema is not None:
            answer = await self._open(self._options).ask(
                _recent(history), tools=False, schema=schema, sink=sink
            )
            return replace(answer, tool_mode="constrained")
        extra = {**WITHOUT_REPETITION, **self._options.extra}
        whole = WholeSentences(sink, self.notices)
        answer = await self._open(replace(self._options, extra=extra)).ask(
            _recent(history), tools=False, sink=whole
        )
        return replace(whole.end(answer), tool_mode="constrained")

    def _open(self, options: ModelOptions) -> Exchange:
        inner = self._client.open(self._system, (), options)
        inner.notices = self.notices
        return inner


def _ask_back(question: str, sink: Sink | None) -> ModelAnswered:
    if sink is not None:
        sink.add_text(question)
    return ModelAnswered(question, stop="end", tool_mode="constrained")


def _last_results(history: Sequence[Message]) -> list[ToolMessage]:
    results: list[ToolMessage] = []
    for message in reversed(history):
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return results[::-1]


def _is_grounded(said: str, request: str, results: Sequence[ToolMessage]) -> bool:
    """Return whether words say something of the results, and nothing from elsewhere.

    They hold something of the results that the question does not; what looks like a fact (a number,
    a path, an address) stands in one of both; and so do most of the other words.
    """
    shown = "\n".join(result.text for result in results)
    found = {word for word in content_stems(shown) if len(word) > 1}
    asked = set(content_stems(request))
    words = set(content_stems(said))
    if (found - asked).isdisjoint(words):
        return False
    known = f"{request}\n{shown}".casefold()
    facts = (token.strip(_AROUND).casefold() for token in said.split())
    if any(_FACT.search(fact) and fact not in known for fact in facts):
        return False
    return len(words & (found | asked)) >= MIN_GROUNDED * len(words)


MIN_GROUNDED = 0.5
"""Share of the model's words about a result that stand in the result or in the request."""

_FACT = re.compile(r"[\d/@_]|\w\.\w")
_AROUND = ".,;:!?()[]{}<>\"'`*“”"


def _is_copied(said: str, results: Sequence[ToolMessage]) -> bool:
    """Return whether the words are a piece of a result: it is shown anyway, and not twice."""
    plain = " ".join(said.split())
    return any(plain in " ".join(result.text.split()) for result in results)


def _quote(result: ToolMessage, said: str) -> str:
    """Return a result as it is shown; "" if the model's words hold all of it."""
    text = result.text.strip()
    if not result.success:
        return f"`{result.tool}` failed: {_reason(text)}"
    if text and text in said:
        return ""
    return f"`{result.tool}`{RETURNED}{_cut(text, MAX_SHOWN) or '(nothing)'}"


RETURNED = " returned:\n"
"""What stands between a tool's name and its result in an answer."""


def _reason(text: str) -> str:
    """Return the error message of a result object, or the text as it is."""
    try:
        value = parse_json(text.splitlines()[0] if text else "")
    except ValueError:
        return _cut(text, MAX_SHOWN)
    message = None
    if isinstance(value, dict):
        message = cast("dict[str, Any]", value).get("error_message")
    return _cut(str(message or text), MAX_SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[... {len(text) - most} more characters]"


_SHOWN_RESULT = re.compile(rf"(?:^|\n\n)`[^`\n]+`{RETURNED}")


def _recent(history: Sequence[Message]) -> list[Message]:
    """Return the end of the conversation, without calls and results, as far as it fits.

    What was shown of results in answers is left out: the model would go on with it.

    The last message is always there, and cut if it must be.
    """
    kept: list[Message] = []
    left = MAX_REMEMBERED
    for message in reversed(history):
        text = render_results([message]) if isinstance(message, ToolMessage) else message.text
        if kept and (not text or len(text) > left):
            break
        if not text:
            continue
        is_answer = isinstance(message, AssistantMessage)
        if is_answer:
            text = _SHOWN_RESULT.split(text)[0].strip() or "Done."
        text = _cut(text, MAX_REMEMBERED)
        left -= len(text)
        kept.append(AssistantMessage(text) if is_answer else UserMessage(text))
    return kept[::-1]


_SENTENCE_END = re.compile(r"""(?<!\d)[.!?]["')\]*_]*(?=\s)|\n""")


class WholeSentences:
    """A sink in front of another one, which it gives whole sentences as they are complete.

    Args:
        outer: Where the answer goes.
        notices: Where notices go without a sink.
    """

    def __init__(self, outer: Sink | None, notices: list[tuple[str, str]]) -> None:
        self._notice = choose_notice(outer, notices)
        self._outer = outer
        self._begun = ""
        """The sentence that is not complete yet."""
        self._is_any_whole = False

    def add_text(self, piece: str) -> None:
        """Pass on what is complete with this piece."""
        self._begun += piece
        ends = [match.end() for match in _SENTENCE_END.finditer(self._begun)]
        if ends:
            self._is_any_whole = True
            self._pass_on(ends[-1])

    def add_reasoning(self, piece: str) -> None:
        """Pass a piece on."""
        if self._outer is not None:
            self._outer.add_reasoning(piece)

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        """Pass a piece of a call's arguments on."""
        if self._outer is not None:
            self._outer.add_arguments(call, tool, piece)

    def notice(self, topic: str, text: str) -> None:
        """Pass a notice on, or keep it where nobody listens."""
        self._notice(topic, text)

    def end(self, answer: ModelAnswered) -> ModelAnswered:
        """Pass on the rest, or leave a half sentence out of an answer that ran into its limit."""
        rest = self._begun.strip()
        if answer.stop != "length" or not rest or not self._is_any_whole:
            self._pass_on(len(self._begun))
            return answer
        self._begun = ""
        self.notice("model", "the answer became too long for this model and was ended here")
        text = answer.text.rstrip().removesuffix(rest).rstrip()
        return replace(answer, text=text, stop="end")

    def _pass_on(self, length: int) -> None:
        complete = self._begun[:length]
        self._begun = self._begun[length:]
        if complete and self._outer is not None:
            self._outer.add_text(complete)
