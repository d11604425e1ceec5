"""Text on its way to a model: it cannot speak with the model's control tokens, and holds nothing
that nobody sees.

A server that is given text reads the control tokens of its model out of it: `<|im_end|>` in the
result of a tool ends the turn, and what follows is obeyed as a turn of its own. Unseen characters
carry words that a person who looks at the same text does not read. Every conversation is opened by
`ways.ladder.open_exchange`, and there everything that others may have written (system text, tools,
messages) goes through this module, before anything of Ferrule's own is put around it.

Both are spelled out as JSON escapes: `\\u003c|im_end|>`, `\\u200b`. So a reader sees what it was,
and a model that copies the spelling into the arguments of a call, which are JSON, writes the
character itself. A message in which something was spelled out says so at its end.

A client that has its text encoded without control tokens (`encodes_text`: the model on this
machine) is given them as they are.

NOT covered: what only marks a place in code or a document (`<filename>`, `<table>`), roles as words
(`USER:`), the blocks of a provider that are sent back to it byte for byte (`AssistantMessage.raw`),
and the schema of an output, which a program wrote.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ferrule.core.calls import Call, compact
from ferrule.core.events import ModelAnswered
from ferrule.core.invisible_characters import for_models
from ferrule.core.lazy_patterns import expression
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage

from .client import Exchange, Sink, ToolSpec

_AFTER_ANGLE = (
    # ChatML, Llama 3, Phi, GLM, Kimi, Cohere, Granite, gpt-oss, InternLM, LFM, ...: one form for
    # all.
    r"\|[^\s<>|]{1,64}\|>",
    r"｜[^\s<>｜]{1,64}｜>",  # DeepSeek, with its own bars
    r"/?｜DSML｜",  # DeepSeek 3.2
    r"\|[a-z_/]{1,32}>",  # Gemma 4: the opening half
    r"[a-z_/]{1,32}\|>",  # and the closing one
    r"/?s>|(?:unk|pad|bos|eos|sop|eop|escape)>",  # Llama 2, Mistral, Gemma, GLM, T5
    r"[A-Z_]{1,32}_TOKEN>",  # Command R
    r"(?:start|end)_of_(?:turn|image|text)>",  # Gemma
    r"(?:start|end)_function_(?:call|response|declaration)>",  # FunctionGemma
    r"/?(?:think|tool_calls?|tool_responses?|arg_key|arg_value)>",  # Qwen, GLM, Hunyuan
    r"/?(?:seed|minimax|mm):[a-z_]{1,32}>",  # Seed, MiniMax
    r"(?:SPECIAL|extra_id|reserved|unused)_?\d{1,5}>",  # Nemotron, T5, Baichuan, Gemma
    r"</?SYS>>",  # Llama 2
)
_BRACKETS = (
    r"\[(?:/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|TOOL_CONTENT|THINK|MODEL_SETTINGS)"
    r"|ARGS|CALL_ID|PREFIX|MIDDLE|SUFFIX|gMASK|sMASK)\]",  # Mistral, GLM
    r"\[e~\[|\]~!?b[\[\]]",  # MiniMax
    r"◁/?(?:think|tool_call)▷",  # Kimi VL
)
_TOKEN = expression("|".join((f"<(?:{'|'.join(_AFTER_ANGLE)})", *_BRACKETS)))
"""Spellings of control tokens of the families that servers run, as their vocabularies have them."""

_OPENS = frozenset("<[]◁")
_ESCAPED = expression(r"\\[bfru/]")
_NOTED = 6
"""Kinds of spellings that a message's note names."""


def escape(characters: str) -> str:
    """Characters as escapes of JSON; beyond U+FFFF as the pair that JSON has for them."""
    units = characters.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def spell_out(text: str, *, tokens: bool = True, found: Counter[str] | None = None) -> str:
    """A text as a model may have it. The same text comes back where nothing is to be spelled; twice
    is the same as once.

    Args:
        text: What anybody may have written.
        tokens: Whether control tokens are spelled out too.
        found: Counts what was spelled out, by the words a note has for it.
    """

    def unseen(characters: str) -> str:
        if found is not None:
            found.update(f"U+{ord(character):04X}" for character in characters)
        return escape(characters)

    def token(match: re.Match[str]) -> str:
        spelled = escape(match[0][0]) + match[0][1:]
        if found is not None:
            found[spelled] += 1
        return spelled

    spelled = for_models(text, unseen)
    if not tokens or _OPENS.isdisjoint(spelled):
        return spelled
    # What is spelled out within a longer one (`<|<turn|>`) may leave another: each round takes at
    # least one opening mark.
    while (again := _TOKEN.sub(token, spelled)) != spelled:
        spelled = again
    return spelled


def is_control_token(text: str) -> bool:
    """Whether a text is the spelling of a control token of a known family."""
    return _TOKEN.fullmatch(text) is not None


def map_json(text: str, spell: Callable[[str], str]) -> str:
    """JSON text with `spell` applied to its strings as the server reads them; the same text where
    that changes nothing.

    Text that is no JSON is treated as text.
    """
    if spell(text) == text and not _ESCAPED.search(text):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return spell(text)
    spelled = _map_value(value, spell)
    return text if spelled == value else compact(spelled)


def _map_value(value: Any, spell: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return spell(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return {spell(str(name)): _map_value(part, spell) for name, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_map_value(part, spell) for part in cast("Sequence[Any]", value)]
    return value


def map_tool(tool: ToolSpec, spell: Callable[[str], str]) -> ToolSpec:
    """A tool with `spell` applied to what it says of itself; the same object where that changes
    nothing.

    Its names stay: calls are matched by them, and providers allow nothing in them that would
    matter.
    """
    description = spell(tool.description)
    schema = map_json(tool.schema, spell)
    examples = tuple(_map_value(example, spell) for example in tool.examples)
    if (description, schema, examples) == (tool.description, tool.schema, tool.examples):
        return tool
    return replace(tool, description=description, schema=schema, examples=examples)


def map_message(message: Message, spell: Callable[[str], str]) -> Message:
    """A message with `spell` applied to all its texts; the same object where that changes
    nothing.
    """
    text = spell(message.text)
    if isinstance(message, UserMessage):
        return message if text == message.text else UserMessage(text)
    if isinstance(message, ToolMessage):
        mapped = ToolMessage(spell(message.call_id), spell(message.tool), text, message.success)
    else:
        calls = tuple(
            Call(spell(call.id), spell(call.tool), map_json(call.arguments, spell))
            for call in message.calls
        )
        mapped = AssistantMessage(text, calls, spell(message.reasoning), message.raw)
    return message if mapped == message else mapped


class SpelledTools:
    """Tools as a model may have them. The same value for the same tools: clients know their catalog
    by its identity.
    """

    def __init__(self) -> None:
        self._last: tuple[Sequence[ToolSpec], bool, Sequence[ToolSpec]] = ((), True, ())

    def of(self, tools: Sequence[ToolSpec], *, tokens: bool = True) -> Sequence[ToolSpec]:
        """The tools, spelled out; the given value itself where that changes nothing."""
        given, wanted, known = self._last
        if given is tools and wanted == tokens:
            return known
        spell = partial(spell_out, tokens=tokens)
        made = tuple(map_tool(tool, spell) for tool in tools)
        same = all(new is old for new, old in zip(made, tools, strict=True))
        spelled = tools if same else made
        if isinstance(tools, tuple):
            # A list could change under us.
            self._last = (tools, tokens, spelled)
        return spelled


SPELLED_TOOLS = SpelledTools()
"""Remembers the tools that were asked for last: the sessions of an agent share its catalog."""


class SpellingExchange:
    """An `Exchange` that hands on what it is given spelled out. Each message is looked at once, and
    the list only grows.
    """

    def __init__(self, inner: Exchange, *, tokens: bool = True) -> None:
        self.inner = inner
        self.notices: list[tuple[str, str]] = inner.notices
        self._tokens = tokens
        self._messages: list[Message] = []

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """See `Exchange.ask`."""
        if len(history) < len(self._messages):
            self._messages = []
        for message in history[len(self._messages) :]:
            self._messages.append(spell_message(message, tokens=self._tokens))
        answer = await self.inner.ask(self._messages, tools=tools, schema=schema, sink=sink)
        # It may have gone over to another way of calling tools, and with it to another list.
        self.notices = self.inner.notices
        return answer


def spell_message(message: Message, *, tokens: bool = True) -> Message:
    """A message as a model may have it; the same object where nothing is to be spelled.

    What a tool or a person said gets a note on what was spelled out. A model's own words get none:
    it wrote them.
    """
    found: Counter[str] = Counter()
    spelled = map_message(message, partial(spell_out, tokens=tokens, found=found))
    if spelled is message or isinstance(spelled, AssistantMessage):
        return spelled
    size = len(message.text.encode("utf-8", "replace"))
    return replace(spelled, text=_bounded(spelled.text, size) + _note(found))


def _bounded(text: str, before: int) -> str:
    """A spelled text of at most the size that results may have: an escape is up to six times as
    long as what it spells.
    """
    most = max(OUTPUT_CAP, before)
    data = text.encode()
    if len(data) <= most:
        return text
    kept = data[:most].decode("utf-8", "ignore")
    # No half of an escape at the end.
    kept = re.sub(r"(?:\\u[0-9a-f]{0,3}|\\)\Z", "", kept)
    left = len(data) - len(kept.encode())
    return (
        f"{kept}\n[... {left} bytes left out: spelled out, the text is too long; read it in "
        "smaller parts]"
    )


def _note(found: Counter[str]) -> str:
    named = [f"{what} ({count})" for what, count in found.most_common(_NOTED)]
    if len(found) > _NOTED:
        named.append(f"and {len(found) - _NOTED} kinds more")
    return (
        "\n[note: unseen characters and control tokens of models are written above as JSON "
        f"escapes: {', '.join(named)}. "
        "In the arguments of a call, which are JSON, the same escapes with one backslash "
        "mean the characters themselves.]"
    )
