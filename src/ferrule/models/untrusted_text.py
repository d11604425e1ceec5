r"""Makes text safe for a model: no control tokens of the model, and no invisible characters.

A server that is given text reads its model's control tokens out of it: `<|im_end|>` in the result
of a tool ends the turn, and what follows is obeyed as a turn of its own. Invisible characters carry
words that a person who looks at the same text does not see. Every conversation is opened in
`tool_modes.selection`, and there everything that others may have written (system text, tools,
messages) passes through this module, before Ferrule adds anything of its own around it.

Both are written as JSON escapes: `\u003c|im_end|>`, `\u200b`. So a reader sees what it was, and a
model that copies the escape into the arguments of a call, which are JSON, writes the character
itself. A message in which something was escaped gets a note at its end.

A client whose text is encoded without control tokens (`encodes_text`: the model on this machine)
receives them unchanged.

NOT covered: what only marks a place in code or a document (`<filename>`, `<table>`), roles as words
(`USER:`), the blocks of a provider that are sent back to it byte for byte (`AssistantMessage.raw`),
and the schema of an output, which a program wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ferrule.core.calls import ToolCall, encode_json, parse_json
from ferrule.core.events import ModelAnswered
from ferrule.core.invisible_characters import escape_for_models
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.media import MediaReference
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
_CONTROL_TOKEN = compile_lazily("|".join((f"<(?:{'|'.join(_AFTER_ANGLE)})", *_BRACKETS)))
"""Control tokens of the model families that servers run, as their vocabularies spell them."""

_OWN_MARK = "<notice>"
"""Stands in the system text of most runs; no token begins with it."""
_BRACKET_OPENINGS = ("◁", "[/", "]~", *(f"[{character}" for character in "ACIMPSTegs"))
"""How the tokens of `_BRACKETS` begin. JSON is full of brackets, and of none of these."""
_JSON_ESCAPE = compile_lazily(r"\\[bfru/]")
_NOTED_KINDS = 6
"""How many different escapes a message's note names."""


def escape_as_json(characters: str) -> str:
    """Return characters as JSON escapes; beyond U+FFFF as a surrogate pair."""
    units = characters.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def escape_untrusted(text: str, *, tokens: bool = True, counts: Counter[str] | None = None) -> str:
    """Escape invisible characters and control tokens in a text.

    Text without any is returned unchanged. Escaping twice is the same as escaping once.

    Args:
        text: Text that anybody may have written.
        tokens: Whether control tokens are escaped too.
        counts: Counts what was escaped, under the name that a note gives it.
    """

    def escape_invisible(characters: str) -> str:
        if counts is not None:
            counts.update(f"U+{ord(character):04X}" for character in characters)
        return escape_as_json(characters)

    def escape_token(match: re.Match[str]) -> str:
        # What is inside is escaped here already: a note repeats the whole.
        inside = escape_untrusted(match[0][1:], counts=counts)
        escaped = escape_as_json(match[0][0]) + inside
        if counts is not None:
            counts[escaped] += 1
        return escaped

    escaped = escape_for_models(text, escape_invisible)
    if not tokens or not _may_open(escaped):
        return escaped
    # Escaping a token inside a longer one (`<|<turn|>`) may leave another. Each pass escapes at
    # least one opening mark, so this ends.
    while True:
        again = _CONTROL_TOKEN.sub(escape_token, escaped)
        if again == escaped:
            return escaped
        escaped = again


def _may_open(text: str) -> bool:
    """Return whether a control token might begin in a text."""
    if "<" in text:
        text = text.replace(_OWN_MARK, "")
        if "<" in text:
            return True
    if "[" in text or "]" in text:
        return any(opening in text for opening in _BRACKET_OPENINGS)
    return "◁" in text


def is_control_token(text: str) -> bool:
    """Return whether a text is a control token of a known model family."""
    return _CONTROL_TOKEN.fullmatch(text) is not None


def map_json(text: str, transform: Callable[[str], str]) -> str:
    """Apply `transform` to the strings of a JSON text, as the server reads them.

    Returns the same text if nothing changes. Text that is not JSON is treated as plain text.
    """
    if transform(text) == text and not _JSON_ESCAPE.search(text):
        return text
    try:
        value = parse_json(text)
    except ValueError:
        return transform(text)
    mapped = _map_value(value, transform)
    return text if mapped == value else encode_json(mapped)


def _map_value(value: Any, transform: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return transform(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return {transform(str(name)): _map_value(part, transform) for name, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_map_value(part, transform) for part in cast("Sequence[Any]", value)]
    return value


def map_tool(tool: ToolSpec, transform: Callable[[str], str]) -> ToolSpec:
    """Apply `transform` to a tool's description, schema and examples.

    Returns the same object if nothing changes. Names stay: calls are matched by them, and providers
    allow nothing in them that would matter.
    """
    description = transform(tool.description)
    schema = map_json(tool.schema, transform)
    examples = tuple(_map_value(example, transform) for example in tool.examples)
    if (description, schema, examples) == (tool.description, tool.schema, tool.examples):
        return tool
    return replace(tool, description=description, schema=schema, examples=examples)


def map_message(message: Message, transform: Callable[[str], str]) -> Message:
    """Apply `transform` to all texts of a message. Return the same object if nothing changes."""
    if isinstance(message, UserMessage) and message.media:
        return _map_parts(message, transform)
    text = transform(message.text)
    if isinstance(message, UserMessage):
        return message if text == message.text else UserMessage(text)
    if isinstance(message, ToolMessage):
        mapped = ToolMessage(
            transform(message.call_id),
            transform(message.tool),
            text,
            message.success,
            message.media,
        )
    else:
        calls = tuple(
            ToolCall(transform(call.id), transform(call.tool), map_json(call.arguments, transform))
            for call in message.calls
        )
        mapped = AssistantMessage(text, calls, transform(message.reasoning), message.raw)
    return message if mapped == message else mapped


def _map_parts(message: UserMessage, transform: Callable[[str], str]) -> UserMessage:
    """Apply `transform` to the texts between media, which keep their places."""
    text = ""
    start = 0
    media: list[MediaReference] = []
    for one in message.media:
        text += transform(message.text[start : one.at])
        start = one.at
        media.append(replace(one, at=len(text), name=transform(one.name)))
    mapped = UserMessage(text + transform(message.text[start:]), tuple(media))
    return message if mapped == message else mapped


class EscapedTools:
    """Escapes tools, and returns the same value for the same tools.

    Model clients recognise their catalog by its identity.
    """

    def __init__(self) -> None:
        self._last: tuple[Sequence[ToolSpec], bool, Sequence[ToolSpec]] = ((), True, ())

    def escape_tools(self, tools: Sequence[ToolSpec], *, tokens: bool = True) -> Sequence[ToolSpec]:
        """Return the tools escaped; the given value itself if nothing changes."""
        last_tools, last_tokens, last_escaped = self._last
        if last_tools is tools and last_tokens == tokens:
            return last_escaped
        transform = partial(escape_untrusted, tokens=tokens)
        mapped = tuple(map_tool(tool, transform) for tool in tools)
        unchanged = all(new is old for new, old in zip(mapped, tools, strict=True))
        escaped = tools if unchanged else mapped
        if isinstance(tools, tuple):
            # Only a tuple is remembered: a list could be changed later.
            self._last = (tools, tokens, escaped)
        return escaped


ESCAPED_TOOLS = EscapedTools()
"""Remembers the last tools: the sessions of an agent share its catalog."""


class EscapingExchange:
    """An `Exchange` that escapes what it passes on.

    Each message is processed once; the list only grows.
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
        """Escape the new messages, then ask; see `Exchange.ask`."""
        if len(history) < len(self._messages):
            self._messages = []
        for message in history[len(self._messages) :]:
            self._messages.append(escape_message(message, tokens=self._tokens))
        answer = await self.inner.ask(self._messages, tools=tools, schema=schema, sink=sink)
        # It may have switched to another tool mode, and with it to another list.
        self.notices = self.inner.notices
        return answer


def escape_message(message: Message, *, tokens: bool = True) -> Message:
    """Escape a message; return the same object if nothing changes.

    Tool results and user messages get a note on what was escaped. A model's own messages get none:
    it wrote them.
    """
    if _has_nothing_to_escape(message):
        return message
    found: Counter[str] = Counter()
    escaped = map_message(message, partial(escape_untrusted, tokens=tokens, counts=found))
    if escaped is message or isinstance(escaped, AssistantMessage):
        return escaped
    size = len(message.text.encode("utf-8", "replace"))
    return replace(escaped, text=_truncate(escaped.text, size) + _describe_escapes(found))


def _has_nothing_to_escape(message: Message) -> bool:
    """Return whether one look at all texts of a message shows that nothing has to be escaped.

    True of most messages between a model and its tools; False may be said of any.
    """
    if isinstance(message, AssistantMessage):
        texts = [message.text, message.reasoning]
        for call in message.calls:
            texts += (call.id, call.tool, call.arguments)
    elif message.media:
        return False
    elif isinstance(message, ToolMessage):
        texts = [message.text, message.call_id, message.tool]
    else:
        texts = [message.text]
    text = "".join(texts)
    drawn = text.replace("\n", "").replace("\t", "")
    # A backslash in arguments may begin an escape of JSON.
    is_drawn = text.isascii() and drawn.isprintable() and "\\" not in text
    return is_drawn and not _may_open(text)


def _truncate(text: str, before: int) -> str:
    """Cut an escaped text to the size that results may have.

    An escape is up to six times as long as what it replaces.
    """
    limit = max(OUTPUT_CAP, before)
    data = text.encode()
    if len(data) <= limit:
        return text
    kept = data[:limit].decode("utf-8", "ignore")
    # No half of an escape at the end.
    kept = re.sub(r"(?:\\u[0-9a-f]{0,3}|\\)\Z", "", kept)
    left = len(data) - len(kept.encode())
    return (
        f"{kept}\n[... {left} bytes left out: spelled out, the text is too long; read it in "
        "smaller parts]"
    )


def _describe_escapes(found: Counter[str]) -> str:
    named = [f"{what} ({count})" for what, count in found.most_common(_NOTED_KINDS)]
    if len(found) > _NOTED_KINDS:
        named.append(f"and others ({len(found) - _NOTED_KINDS} kinds)")
    return (
        "\n[note: unseen characters and control tokens of models are written above as JSON "
        f"escapes: {', '.join(named)}. "
        "In the arguments of a call, which are JSON, the same escapes with one backslash "
        "mean the characters themselves.]"
    )
