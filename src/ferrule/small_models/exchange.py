"""The `constrained` tool mode for models too small to plan: one step at a time.

    what the model is asked        how it answers
    a message, with tools          with a call, chosen by `tool_choice` and filled by
                                   `argument_filling`; in words if no tool is called for by enough
                                   of a margin (`abstention`). A tool that changes something is
                                   called only if the message orders it (`action_check`); if it is
                                   ordered and unclear, the person is asked
    results, and the message said  with the next call, up to `MAX_CALLS`: a message is cut where one
    more                           order ends and the next begins (`abstention.split_request`)
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

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

from ferrule.core.calls import ToolCall, encode_json, parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.core.value_class import frozen
from ferrule.models.client import (
    Capabilities,
    Exchange,
    ModelClient,
    ModelOptions,
    Sink,
    ToolSpec,
)
from ferrule.models.tool_modes.plain_history import render_results
from ferrule.models.tool_modes.text import parameter_schema
from ferrule.tools.word_stems import content_stems

from .abstention import is_called_for, split_request, unquote
from .action_check import (
    find_opening_order,
    find_order_for,
    find_problem,
    is_only_asked_about,
    may_change,
    spell_out,
)
from .argument_filling import ArgumentFiller
from .repeated_calls import find_repeated_requests
from .request import Request
from .slots import PATH_WORDS, read_slots
from .tool_choice import LearnedWeights, ToolChooser, ToolOffer, request_prompt
from .whole_sentences import WholeSentences

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

MAX_CALLS = 3
"""Calls for one message."""

SILENT_SECONDS = 2.0
"""How long tools are read before the person is told."""

READING_TOOLS = "reading the tools' descriptions: a minute or so, once"

MAX_LEARNED = 8
"""Sets of tools that are remembered for a model client."""


def open_small_model_exchange(
    client: ModelClient, system: str, tools: Sequence[ToolSpec], options: ModelOptions
) -> Exchange:
    """Open a conversation with a small model, in place of the `constrained` tool mode. No I/O.

    The list of providers names this function for the embedded model (`models.registry`).

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
class SmallModelClient(Protocol):
    """The model client of a small model, with what else it can do (`argument_filling.RawModel`)."""

    @property
    def model(self) -> str: ...
    async def capabilities(self) -> Capabilities: ...
    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange: ...
    async def close(self) -> None: ...
    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str: ...
    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]: ...


_LEARNED: WeakKeyDictionary[SmallModelClient, dict[tuple[str, ...], LearnedWeights]] = (
    WeakKeyDictionary()
)
"""What choosers learned, by model client.

A session, and a program that opens many of them, computes it once for a set of tools.
"""


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
        self._specs = {spec.api_name: spec for spec in tools}
        self._options = replace(
            options,
            temperature=0.0 if options.temperature is None else options.temperature,
            max_tokens=options.max_tokens or 160,
        )
        self._chooser = ToolChooser([_offer(spec) for spec in tools])
        self._parts: list[_Part] = []
        self._calls_made = 0
        self._question = ""

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
        may_call = tools and schema is None and bool(self._specs)
        if may_call and isinstance(last, UserMessage):
            self._parts = await self._find_parts(last.text, sink)
            self._calls_made = 0
            self._question = ""
        if may_call and (isinstance(last, UserMessage) or _has_succeeded(last)):
            call = await self._next_call(sink)
            if call:
                return ModelAnswered("", (call,), stop="calls", tool_mode="constrained")
            if self._question and isinstance(last, UserMessage):
                return _ask_back(self._question, sink)
        if schema is None and isinstance(last, ToolMessage):
            return await self._report_results(history, sink)
        return await self._answer_in_words(history, schema, sink)

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
        ranked = await self._rank(Request(text), sink)
        return next((offer for _, offer in ranked if offer is not None), None)

    async def _rank(
        self, request: Request, sink: Sink | None
    ) -> list[tuple[float, ToolOffer | None]]:
        if not self._chooser.is_ready:
            await self._prepare_chooser(sink)
        vectors = await self._client.embed([request_prompt(request.text)])
        return self._chooser.rank(request, vectors[0])

    async def _find_repeated(self, offer: ToolOffer, text: str) -> list[str]:
        spec = self._specs[offer.name]
        schema = parameter_schema(spec)
        return await find_repeated_requests(
            text, spec.api_name, spec.description, schema, offer.slots
        )

    async def _next_call(self, sink: Sink | None) -> ToolCall | None:
        """Return the call for the next part of the message; None if no part is left that needs one.

        A part that names no path and speaks of `it` is about the path that was named before.
        """
        while self._parts and self._calls_made < MAX_CALLS:
            part = self._parts.pop(0)
            if part.tool is None:
                call = await self._choose_call(part.text, sink)
            else:
                call = await self._make_call_of(part.tool, Request(part.text))
            if call is not None:
                self._calls_made += 1
                return call
        return None

    async def _choose_call(self, text: str, sink: Sink | None) -> ToolCall | None:
        """Return the call that a request asks for; None if it asks for words.

        A tool that changes something, and is not asked for, is passed over.
        """
        request = Request(text)
        ranked = await self._rank(request, sink)
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
        if self._question:
            return None  # It was ordered and is unclear: nothing else is called in its place.
        for score, offer in offers:
            if may_change(self._specs[offer.name]):
                call = await self._make_first_call(offer, request)
                if call is not None:
                    return call
            elif is_called_for(request, offer, score, talk):
                return await self._make_first_call(offer, request)
            elif not any(atom.kind == "path" for atom in request.atoms):
                return None  # With a path, the next tool may take it.
        return None

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
        call = await self._make_call_of(offer, Request(several[0]))
        if call is not None:
            self._parts[:0] = [_Part(text, offer) for text in several[1:]]
        return call

    async def _make_call_of(self, offer: ToolOffer, request: Request) -> ToolCall | None:
        """Return the call of a tool; None if it changes something without a clear order."""
        if may_change(self._specs[offer.name]):
            return await self._make_ordered_call(offer, request)
        return await self._make_call(offer, request)

    async def _make_call(self, offer: ToolOffer, request: Request) -> ToolCall:
        spec = self._specs[offer.name]
        return ToolCall("", spec.name, encode_json(await self._fill_arguments(spec, request.text)))

    async def _make_ordered_call(self, offer: ToolOffer, request: Request) -> ToolCall | None:
        """Return the call of a tool that changes something, if it is ordered and clear.

        If it is ordered and not clear, a question is kept for the person.
        """
        spec = self._specs[offer.name]
        if find_order_for(spec, request) is None:
            return None
        arguments = await self._fill_arguments(spec, request.text)
        problem = find_problem(spec, offer.slots, arguments, request)
        if not problem:
            return ToolCall("", spec.name, encode_json(arguments))
        if _speaks_of_files(request):
            self._question = self._question or f"I did not call `{spec.name}`: {problem}."
        return None

    async def _fill_arguments(self, spec: ToolSpec, text: str) -> dict[str, Any]:
        schema = parameter_schema(spec)
        filling = ArgumentFiller(
            self._client, spec.api_name, spec.description, schema, _example_arguments(spec)
        )
        return _drop_refused(await filling.fill(text), schema)

    async def _prepare_chooser(self, sink: Sink | None) -> None:
        """Let the chooser learn, unless this model client had the same tools before."""
        prompts = tuple(self._chooser.prompts())
        known = _LEARNED.setdefault(self._client, {})
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
            return await self._client.embed(prompts, keep=True)
        loop = asyncio.get_running_loop()
        saying = loop.call_later(SILENT_SECONDS, sink.notice, "model", READING_TOOLS)
        try:
            return await self._client.embed(prompts, keep=True)
        finally:
            saying.cancel()

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
        if self._parts and all(result.success for result in results):
            left = "; ".join(part.text for part in self._parts)
            parts.append(f"Not done, as one message makes {MAX_CALLS} calls at most: {left}")
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


@frozen
class _Part:
    """A part of a message that asks for a call: its text, and the tool if that is known."""

    text: str
    tool: ToolOffer | None = None


def _has_succeeded(message: Message) -> bool:
    return isinstance(message, ToolMessage) and message.success


def _speaks_of_files(request: Request) -> bool:
    """Return whether a request names a path or a quotation, or speaks of files.

    Only such a request is asked back about: `Write a haiku` wants words.
    """
    kinds = {atom.kind for atom in request.atoms}
    return bool(kinds & {"path", "quoted"}) or not PATH_WORDS.isdisjoint(request.stems)


def _ask_back(question: str, sink: Sink | None) -> ModelAnswered:
    if sink is not None:
        sink.add_text(question)
    return ModelAnswered(question, stop="end", tool_mode="constrained")


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
