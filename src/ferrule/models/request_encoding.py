"""Encoding of requests: tool names, tools, messages and arguments, each encoded once.

Also a low estimate of a request's tokens, which reveals a server that cut the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from jiter import from_json

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.media import MediaReference
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage

from .client import ModelOptions, ToolSpec

_INVALID_IN_NAME = compile_lazily(r"[^A-Za-z0-9_-]")

ALARM_MIN_TOKENS = 200
"""Below this many estimated tokens a cut cannot be told from a compact chat template."""
ALARM_SHARE = 0.6
"""A server that read less than this share of the estimate, itself a low one, has cut the prompt."""


class ToolNames:
    """Maps tool names to the names that are sent, and back.

    Inbound, a name that no tool has passes through unchanged. Outbound it is made to fit, because a
    provider refuses a history with a name it does not allow.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._out = {tool.name: tool.api_name for tool in tools}
        self.inbound = InboundNames({tool.api_name: tool.name for tool in tools})

    def outbound(self, name: str) -> str:
        """Return the name to send for a tool."""
        known = self._out.get(name)
        if known is None:
            known = self._out[name] = fit_name(name) or "unnamed"
        return known


class InboundNames(dict[str, str]):
    """The names of tools by the names that were sent.

    What servers leave around a name from the model's own format (`functions.add`, `add<|channel|>`)
    is taken off if a tool has the rest for a name, and only then.
    """

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the name of the tool that an answer names, else the default."""
        if key in self:
            return self[key]
        bare = key.partition("<|")[0].strip().removeprefix("functions.")
        return super().get(bare, default)


def fit_name(name: str) -> str:
    """Replace the characters of a name that providers do not allow. Two names may become equal."""
    return _INVALID_IN_NAME.sub("_", name)[:64]


RESULTS_READ = "[the results were read]"
"""What a model is made to say where a server wants an answer after results."""


class EncodedHistory:
    """A history as the elements of a JSON array, each message encoded once.

    `json` holds the elements with commas between them, `last_start` says where the last one begins,
    and `weight` is the sum of `weigh_message`. `system_message` is sent for the system text. Media
    of results follow the results of a turn as a user message: these protocols have no other place
    for them. With `answers_results` an answer of a few words stands between results and a user
    message, for servers that refuse one right after the other. The history may only grow; one that
    got shorter is another conversation and is encoded anew.
    """

    def __init__(
        self,
        system: str,
        encode: Callable[[Message], bytes],
        system_message: bytes | None = None,
        *,
        answers_results: bool = False,
    ) -> None:
        self._encode = encode
        self.answers_results = answers_results
        if system_message is None:
            system_message = encode_json_bytes({"role": "system", "content": system})
        self._start = system_message if system else b""
        self._start_weight = weigh_text(system)
        self._reset()

    def _reset(self) -> None:
        self.json = bytearray(self._start)
        self.last_start = len(self.json)
        self.weight = self._start_weight
        self._count = 0
        self._ends_in_result = False
        self._media: list[MediaReference] = []

    def answer_results(self) -> None:
        """Encode the history anew, with an answer between results and a user message."""
        self.answers_results = True
        self._reset()

    def extend(self, history: Sequence[Message]) -> None:
        """Encode the messages that are new."""
        if len(history) < self._count:
            self._reset()
        for message in history[self._count :]:
            is_result = isinstance(message, ToolMessage)
            if self._media and not is_result:
                self._add_media()
            self._add(message)
            if is_result and message.media:
                self._media += message.media
        if self._media:
            self._add_media()
        self._count = len(history)

    def _add(self, message: Message) -> None:
        if self.answers_results and self._ends_in_result and isinstance(message, UserMessage):
            self._add(AssistantMessage(RESULTS_READ))
        self._ends_in_result = isinstance(message, ToolMessage)
        if self.json:
            self.json += b","
        self.last_start = len(self.json)
        self.json += self._encode(message)
        self.weight += weigh_message(message)

    def _add_media(self) -> None:
        text = "[what the tools returned besides text]"
        media = tuple([replace(one, at=len(text)) for one in self._media])
        self._media = []
        self._add(UserMessage(text, media))


class EncodedTurns:
    """A history as JSON, each message encoded once; neighbours of one role are joined.

    `encode` returns a message's role and blocks; `member` is what a turn calls its blocks. `weight`
    is the sum of `weigh_message`. The history may only grow; one that got shorter is another
    conversation and is encoded anew.
    """

    def __init__(self, encode: Callable[[Message], tuple[str, str]], member: str) -> None:
        self._encode = encode
        self._member = member.encode()
        self._reset()

    def _reset(self) -> None:
        self.json = bytearray()
        self.weight = 0
        self._role = ""
        self._count = 0

    def extend(self, history: Sequence[Message]) -> None:
        """Encode the messages that are new."""
        if len(history) < self._count:
            self._reset()
        for message in history[self._count :]:
            role, blocks = self._encode(message)
            if role == self._role:
                del self.json[-2:]
                self.json += b"," + encode_utf8(blocks) + b"]}"
            else:
                self.json += b"," if self.json else b""
                turn = (role.encode(), self._member, encode_utf8(blocks))
                self.json += b'{"role":"%b","%b":[%b]}' % turn
            self._role = role
            self.weight += weigh_message(message)
        self._count = len(history)


def encode_tools(tools: Sequence[ToolSpec]) -> bytes:
    """Encode the `tools` array of chat completions and of Ollama.

    Schemas are JSON already and are not parsed again.
    """
    return ("[" + ",".join(_encode_tool(tool) for tool in tools) + "]").encode()


def describe_tool(tool: ToolSpec) -> str:
    """Return a tool's description, followed by its examples."""
    examples = tool.argument_examples
    if not examples:
        return tool.description
    shown = "\n".join(encode_json(example) for example in examples)
    return f"{tool.description}\nExamples of arguments:\n{shown}"


def _encode_tool(tool: ToolSpec) -> str:
    head = f'"name":{encode_json(tool.api_name)},"description":{encode_json(describe_tool(tool))}'
    return (
        f'{{"type":"function","function":{{{head},"parameters":{complete_schema(tool.schema)}}}}}'
    )


def complete_schema(schema: str) -> str:
    """Return a tool's schema with the members that some servers miss: `type` and `properties`.

    MCP servers leave `properties` out of tools without parameters, and OpenAI's API then refuses
    the whole request.
    """
    if schema.startswith('{"type":"object","properties":'):
        return schema
    parsed = parse_object(schema)
    if parsed.get("type") == "object" and isinstance(parsed.get("properties"), dict):
        return schema
    return encode_json({**parsed, "type": "object", "properties": parsed.get("properties") or {}})


def arguments_as_object(arguments: str) -> str:
    """Return arguments as a JSON object, for servers whose chat templates read them.

    Valid objects are returned unchanged. Anything else is wrapped in an object as the text it is,
    so that the history stays valid; the result of that call already said what was wrong.
    """
    is_object = isinstance(_parse_or_none(arguments), dict)
    return arguments if is_object else encode_json({"invalid_arguments": arguments})


def _parse_or_none(text: str) -> object:
    try:
        return from_json(text.encode())
    except ValueError:
        pass
    # jiter refuses half of a surrogate pair, which the standard library reads.
    try:
        return parse_json(text)
    except ValueError:
        return None


def weigh_text(text: str) -> int:
    """Count the characters that cost tokens. Spaces and line feeds cost next to nothing."""
    return len(text) - text.count(" ") - text.count("\n")


def weigh_message(message: Message) -> int:
    """Return the `weight` a message adds to the prompt.

    Reasoning is not counted, since chat templates drop it.
    """
    total = weigh_text(message.text)
    if isinstance(message, AssistantMessage):
        total += sum(weigh_text(call.arguments) + len(call.tool) for call in message.calls)
    return total


def warn_of_truncation(
    notice: Callable[[str, str], None], sent_weight: int, read_tokens: int, hint: str = ""
) -> None:
    """Give a notice if the server read far fewer tokens than were sent.

    Four characters of `sent_weight` are at least one token for every tokenizer in use. Repetitive
    text (a line of dashes) can cause a false alarm; a cut of more than about half is not missed.

    Args:
        notice: Takes the topic and the text of a notice.
        sent_weight: The `weight` of what was sent.
        read_tokens: The tokens that the server counted; 0 if it does not say.
        hint: What a person can do about it.
    """
    estimate = sent_weight // 4
    if not read_tokens or estimate < ALARM_MIN_TOKENS or read_tokens >= ALARM_SHARE * estimate:
        return
    text = (
        f"the server read {read_tokens} tokens, but at least about {estimate} were sent: "
        "it has probably cut the start of the conversation, with the tools in it"
    )
    notice("truncated", f"{text}; {hint}" if hint else text)


CHAT_OPTION_NAMES = {
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "seed": "seed",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "stop": "stop",
    "top_k": "top_k",
    "logit_bias": "logit_bias",
    "service_tier": "service_tier",
    "cache_key": "prompt_cache_key",
}
"""Members of a chat-completions request, by the names of the fields of `ModelOptions`."""


def name_options(options: ModelOptions, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that are set, as members of a request.

    Args:
        options: The options of the model.
        names: The names of the provider's API, by those of the fields of `ModelOptions`.
    """
    values = {name: getattr(options, field) for field, name in names.items()}
    return {name: value for name, value in values.items() if value not in (None, "", (), {})}


def find_thinking_budget(model: str, level: str, budgets: Mapping[str, int]) -> int:
    """Return the tokens that a level of thinking stands for.

    Raises:
        ConfigError: None of that name is known.
    """
    if level not in budgets:
        raise ConfigError(
            f"`{model}` cannot be given `thinking` = {level!r}: no number of tokens",
            code="model_options",
            hint=f"use one of {', '.join(budgets)}, True or False",
        )
    return budgets[level]


def encode_cache_mark(lifetime: str) -> str:
    """Return a mark for the prompt cache, as a further member of a JSON object.

    Args:
        lifetime: How long what is marked stays there (`5m`, `1h`); "" for no mark.

    Raises:
        ConfigError: It is something else.
    """
    if lifetime not in ("", "5m", "1h"):
        raise ConfigError(f"cache_control = {lifetime!r}", code="cache", hint='"5m", "1h" or ""')
    if not lifetime:
        return ""
    longer = ',"ttl":"1h"' if lifetime == "1h" else ""
    return f',"cache_control":{{"type":"ephemeral"{longer}}}'


def encode_json_bytes(value: object) -> bytes:
    """Encode a value as compact JSON. A lone surrogate becomes `?`."""
    return encode_utf8(encode_json(value))


def encode_utf8(text: str) -> bytes:
    """Encode text. A lone surrogate (half an emoji from a broken stream) becomes `?`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def parse_object(data: bytes | str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for anything else.

    For bodies of errors and descriptions.
    """
    try:
        value = parse_json(data)
    except ValueError:
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
