"""The `constrained` way for models too small to plan: one step at a time, each decided in the
cheapest sure way.

    a person's message, tools offered   a call, chosen by `choose` and filled by `fill`;
                                        in words only if the message is small talk by a wide margin
    results                             the model's own words on them, bounded, if they say something that
                                        stands in the results; and the results themselves below, so
                                        that the answer holds the fact whatever the words are. A
                                        failure is told as it is: a small model would call it a
                                        success
    tools not offered, or a schema      the model as it is

So a run is one call and one answer. That is what a model of this size can be trusted with; whoever
needs several steps asks several times, or takes a larger model.

Windows are small too: what is said before is cut to `REMEMBERED` characters, a result to `READ`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

from ferrule.core.calls import Call, compact
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Capabilities, Exchange, ModelOptions, Sink, ToolSpec
from ferrule.models.tool_modes.plain_conversation import show_results
from ferrule.models.tool_modes.text import parameters
from ferrule.tools.word_stems import content

from .argument_filling import Filling
from .request import Request
from .slots import read_slots
from .tool_choice import Chooser, Learned, Offer, asked

READ, SHOWN, REMEMBERED = 1200, 2000, 3000
"""Characters: of a result that the model reads, of a result that is shown below its words, of
earlier talk.
"""

TALK, NO_TOOL = 0.5, 0.2
"""Words instead of a call: small talk must score at least `TALK` and no tool more than `NO_TOOL`.
"""

MOST_LEARNED = 8
"""Sets of tools a wire remembers."""


@runtime_checkable
class Small(Protocol):
    """A wire to a small model, with its extra powers (`fill.Powers`)."""

    @property
    def model(self) -> str: ...
    async def capabilities(self) -> Capabilities: ...
    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange: ...
    async def close(self) -> None: ...
    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str: ...
    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]: ...


_LEARNED: WeakKeyDictionary[Small, dict[tuple[str, ...], Learned]] = WeakKeyDictionary()
"""What choosers learned, by wire: a session, and a program that opens many, pays for a set of tools
once.
"""


class SmallExchange:
    """An `Exchange` that takes the decisions apart for a small model."""

    def __init__(
        self, wire: Small, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._wire = wire
        self._system = system
        self._specs = {spec.wire_name: spec for spec in tools}
        self._options = replace(
            options,
            temperature=0.0 if options.temperature is None else options.temperature,
            max_tokens=options.max_tokens or 160,
        )
        self._chooser = Chooser([_offer(spec) for spec in tools])

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """See `Exchange.ask`."""
        last = history[-1] if history else UserMessage("")
        asked_for = tools and schema is None and isinstance(last, UserMessage) and self._specs
        if asked_for and (call := await self._call(last.text, sink)):
            return ModelAnswered("", (call,), stop="calls", way="constrained")
        if schema is None and isinstance(last, ToolMessage):
            return await self._report(history, sink)
        return await self._words(history, schema, sink)

    async def _call(self, text: str, sink: Sink | None) -> Call | None:
        """The call a message asks for; None if it asks for words."""
        request = Request(text)
        if not self._chooser.ready:
            await self._prepare(sink)
        ranked = self._chooser.rank(request, (await self._wire.embed([asked(text)]))[0])
        talk = next(score for score, offer in ranked if offer is None)
        best, chosen = next((score, offer) for score, offer in ranked if offer is not None)
        plain = all(atom.kind == "word" for atom in request.atoms)
        if plain and talk >= TALK and best <= NO_TOOL:
            return None
        spec = self._specs[chosen.name]
        filling = Filling(
            self._wire, spec.wire_name, spec.description, parameters(spec), _shown(spec)
        )
        arguments = _repaired(await filling.arguments(text), parameters(spec))
        return Call("", spec.name, compact(arguments))

    async def _prepare(self, sink: Sink | None) -> None:
        """Let the chooser learn, unless an exchange of this wire had the same tools before."""
        prompts = tuple(self._chooser.prompts())
        known = _LEARNED.setdefault(self._wire, {})
        if prompts not in known:
            if sink is not None:
                sink.notice("model", "reading the tools' descriptions (kept for the next time)")
            made = self._chooser.learned(await self._wire.embed(prompts, keep=True))
            while len(known) >= MOST_LEARNED:
                known.pop(next(iter(known)), None)
            known[prompts] = made
        self._chooser.use(known[prompts])

    async def _report(self, history: Sequence[Message], sink: Sink | None) -> ModelAnswered:
        """What the results say: in the model's words, then as they are."""
        results = _last_results(history)
        request = next((m.text for m in reversed(history) if isinstance(m, UserMessage)), "")
        cut = [replace(r, text=_cut(r.text, READ // len(results))) for r in results]
        told = UserMessage(
            f"{_cut(request, READ)}\n\n{show_results(cut)}\n\nAnswer in one sentence."
        )
        answer = ModelAnswered()
        if all(r.success for r in results):
            answer = await self._open().ask([told], tools=False)
        said = answer.text.strip() if _grounded(answer.text, request, results) else ""
        text = "\n\n".join(part for part in (said, *(_quoted(r, said) for r in results)) if part)
        if sink is not None:
            sink.text(text)
        return replace(answer, text=text, stop="end", way="constrained")

    async def _words(
        self,
        history: Sequence[Message],
        schema: Mapping[str, Any] | None,
        sink: Sink | None,
    ) -> ModelAnswered:
        answer = await self._open().ask(_recent(history), tools=False, schema=schema, sink=sink)
        return replace(answer, way="constrained")

    def _open(self) -> Exchange:
        inner = self._wire.open(self._system, (), self._options)
        inner.notices = self.notices
        return inner


def _offer(spec: ToolSpec) -> Offer:
    requests = tuple(request for request, _ in requests_of(spec))
    return Offer(spec.wire_name, spec.description, tuple(read_slots(parameters(spec))), requests)


def requests_of(spec: ToolSpec) -> list[tuple[str, Mapping[str, Any]]]:
    """A tool's examples that say how people ask: `{"request": "...", "arguments": {...}}`."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for example in spec.examples:
        request, arguments = example.get("request"), example.get("arguments")
        if isinstance(request, str) and isinstance(arguments, Mapping):
            found.append((request, cast("Mapping[str, Any]", arguments)))
    return found


def _shown(spec: ToolSpec) -> list[tuple[str, str]]:
    return [(request, compact(dict(arguments))) for request, arguments in requests_of(spec)[:3]]


def _repaired(arguments: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without optional ones that the schema refuses. A required one that is wrong
    stays: the dispatcher's answer says what is the matter with it, as it does where the schema
    itself is broken.
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


def _grounded(said: str, request: str, results: Sequence[ToolMessage]) -> bool:
    """Whether the words hold something of the results that was not in the question already."""
    news = {word for r in results for word in content(r.text) if len(word) > 1} - set(
        content(request)
    )
    return not news.isdisjoint(content(said))


def _quoted(result: ToolMessage, said: str) -> str:
    text = result.text.strip()
    if not result.success:
        return f"`{result.tool}` failed: {_reason(text)}"
    if text and text in said:
        return ""
    return f"`{result.tool}` returned:\n{_cut(text, SHOWN) or '(nothing)'}"


def _reason(text: str) -> str:
    """The message of a result object (`Result.envelope`), or the text as it is."""
    try:
        value = json.loads(text.splitlines()[0] if text else "")
    except ValueError:
        return _cut(text, SHOWN)
    message = (
        cast("dict[str, Any]", value).get("error_message") if isinstance(value, dict) else None
    )
    return _cut(str(message or text), SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[... {len(text) - most} more characters]"


def _recent(history: Sequence[Message]) -> list[Message]:
    """The end of the talk, without calls, as far as it fits; the last message always, cut if it
    must be.
    """
    kept: list[Message] = []
    left = REMEMBERED
    for message in reversed(history):
        text = show_results([message]) if isinstance(message, ToolMessage) else message.text
        if not text or (kept and len(text) > left):
            if kept:
                break
            continue
        text = _cut(text, REMEMBERED)
        left -= len(text)
        kept.append(
            AssistantMessage(text) if isinstance(message, AssistantMessage) else UserMessage(text)
        )
    return kept[::-1]
