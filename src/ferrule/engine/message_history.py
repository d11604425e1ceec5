"""The messages of a conversation as a value: kept as JSON, given to a session, in others' shapes.

    first = await agent.run("Who sent this?")
    second = await agent.run("And when?", history=first.messages)
    Path("talk.json").write_text(first.messages.to_json())

Sources of the shapes: OpenAI's Chat Completions messages and Anthropic's Messages API. Both are
read strictly: what a history of text, calls and results cannot hold is an error that names it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from typing import Any, TypeVar, cast, overload

from ferrule.core.calls import ToolCall, encode_json, parse_json, read_arguments
from ferrule.core.errors import ConfigError
from ferrule.core.media import MediaReference, load_media
from ferrule.core.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    UserMessage,
    check_messages,
    decode_messages,
    encode_messages,
)
from ferrule.core.value_class import frozen
from ferrule.tools.names import make_api_names

_WithMedia = TypeVar("_WithMedia", UserMessage, ToolMessage)


@frozen
class MessageHistory(Sequence[Message]):
    """Messages of a conversation, in order, without the system text.

    Attributes:
        messages: The messages.
        system: The system text of an imported conversation. A session that is given the history
            has its own and does not send this one.
    """

    messages: tuple[Message, ...] = ()
    system: str = ""
    read_media: Callable[[MediaReference], bytes] | None = field(default=None, compare=False)
    """Reads the bytes of its media; None if it does not have them."""

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self.messages[index]

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @classmethod
    def parse(cls, given: History) -> MessageHistory:
        """Return the history that a session was given.

        Args:
            given: A history, its JSON text (`to_json`), or messages.

        Raises:
            ConfigError: It is not of that format, or a provider would not take it.
        """
        if isinstance(given, str):
            return cls.from_json(given)
        messages = given.messages if isinstance(given, MessageHistory) else tuple(given)
        for index, message in enumerate(messages, 1):
            if not isinstance(message, UserMessage | AssistantMessage | ToolMessage):  # pyright: ignore[reportUnnecessaryIsInstance]  given by a program
                raise ConfigError(
                    f"history: message {index} is {type(message).__name__}",
                    hint=(
                        "read other shapes with `MessageHistory.from_openai` or `.from_anthropic`"
                    ),
                )
        check_messages(messages)
        return given if isinstance(given, MessageHistory) else cls(messages)

    def list_media(self) -> Iterator[MediaReference]:
        """Yield the references of all media in the messages."""
        for message in self.messages:
            if not isinstance(message, AssistantMessage):
                yield from message.media

    def get_media(self, one: MediaReference) -> bytes:
        """Return the bytes of a medium. Raises ConfigError if they are not to be had."""
        if self.read_media is None:
            raise ConfigError(
                f"history: the bytes of {one.describe()} are not in it",
                hint="write it with `to_json(media=True)`, or leave the message out",
            )
        return self.read_media(one)

    def to_json(self, *, media: bool = False) -> str:
        """Return the messages as JSON text (`core.messages`).

        Args:
            media: Carry the bytes of media too, once each, as base64. Without them the text has
                references alone, and only a session that has the bytes can go on with it.
        """
        text = encode_messages(self.messages)
        if not media:
            return text
        carried = {one.sha256: b64encode(self.get_media(one)).decode() for one in self.list_media()}
        return encode_json({**parse_json(text), "media": carried})

    @classmethod
    def from_json(cls, text: str) -> MessageHistory:
        """Return the history that `to_json` wrote.

        Raises:
            ConfigError: The text is not of this format.
        """
        messages = decode_messages(text)
        if '"media":' not in text:
            return cls(messages)
        carried = parse_json(text).get("media")
        if not isinstance(carried, dict):
            return cls(messages)
        found = cast("dict[str, Any]", carried)

        def read(one: MediaReference) -> bytes:
            try:
                data = b64decode(found[one.sha256], validate=True)
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(f"history: the bytes of {one.describe()} are missing") from error
            if sha256(data).hexdigest() != one.sha256:
                raise ConfigError(f"history: the bytes of {one.describe()} were changed")
            return data

        return cls(messages, read_media=read)

    # ---- OpenAI

    def to_openai(self, *, system: str = "") -> list[dict[str, Any]]:
        """Return the messages as Chat Completions takes them.

        Names of tools become those that providers accept; reasoning is left out. Media are in it as
        base64; those of results follow the results, as a user's message.

        Args:
            system: A system text to begin with.
        """
        names = self._api_names()
        written: list[dict[str, Any]] = []
        media: list[MediaReference] = []
        if system:
            written.append({"role": "system", "content": system})
        for message in self.messages:
            if media and not isinstance(message, ToolMessage):
                written.append(_to_openai_media(media))
                media = []
            if isinstance(message, UserMessage):
                if message.media:
                    written.append(_to_openai_message(self._load(message)))
                else:
                    written.append({"role": "user", "content": message.text})
            elif isinstance(message, ToolMessage):
                media += self._load(message).media
                written.append(
                    {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
                )
            else:
                written.append(_to_openai_answer(message, names))
        if media:
            written.append(_to_openai_media(media))
        return written

    @classmethod
    def from_openai(cls, messages: Iterable[Mapping[str, Any]]) -> MessageHistory:
        """Return the history of recorded Chat Completions messages.

        Texts of the roles `system` and `developer` become `system`.

        Raises:
            ConfigError: A message holds something else than text, calls and results.
        """
        reading = _Reading()
        for index, found in enumerate(messages, 1):
            where = f"message {index}"
            role = found.get("role")
            text = _read_text(found.get("content"), where)
            if role in ("system", "developer"):
                reading.system.append(text)
            elif role == "user":
                reading.messages.append(UserMessage(text))
            elif role == "assistant":
                calls = _read_openai_calls(found.get("tool_calls") or (), where)
                reading.add_answer(text, calls)
            elif role == "tool":
                reading.add_result(found.get("tool_call_id"), text, where, success=True)
            else:
                raise ConfigError(f"history: {where} has the role {role!r}")
        return reading.finish()

    # ---- Anthropic

    def to_anthropic(self) -> list[dict[str, Any]]:
        """Return the messages as Anthropic's Messages API takes them, without thinking blocks."""
        names = self._api_names()
        written: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for message in self.messages:
            if isinstance(message, ToolMessage):
                if not results:
                    written.append({"role": "user", "content": results})
                results.append(_to_tool_result(self._load(message)))
                continue
            results = []
            if isinstance(message, UserMessage):
                content = _to_content(self._load(message)) if message.media else message.text
                written.append({"role": "user", "content": content})
            else:
                written.append({"role": "assistant", "content": _to_blocks(message, names)})
        return written

    @classmethod
    def from_anthropic(
        cls, messages: Iterable[Mapping[str, Any]], *, system: str | Sequence[Any] = ""
    ) -> MessageHistory:
        """Return the history of recorded messages of Anthropic's Messages API.

        Args:
            messages: The messages. Thinking blocks are left out: only the model that wrote them
                can read them.
            system: The request's system text, or its blocks.

        Raises:
            ConfigError: A message holds something else than text, calls and results.
        """
        reading = _Reading()
        if system:
            reading.system.append(_read_text(system, "the system text"))
        for index, found in enumerate(messages, 1):
            where = f"message {index}"
            content = found.get("content")
            role = found.get("role")
            if role not in ("user", "assistant"):
                raise ConfigError(f"history: {where} has the role {role!r}")
            if isinstance(content, str):
                content = [{"type": "text", "text": content}]
            blocks = _read_objects(content, where)
            if role == "user":
                _take_user_blocks(reading, blocks, where)
            else:
                _take_assistant_blocks(reading, blocks, where)
        return reading.finish()

    def _load(self, message: _WithMedia) -> _WithMedia:
        """Return a message with media whose bytes can be read. Raises ConfigError."""
        if not message.media:
            return message
        loaded = [load_media(one, self.get_media) for one in message.media]
        return replace(message, media=tuple(loaded))

    def _api_names(self) -> dict[str, str]:
        named = {
            call.tool
            for message in self.messages
            if isinstance(message, AssistantMessage)
            for call in message.calls
        }
        return make_api_names(sorted(named))


History = MessageHistory | str | Iterable[Message]
"""What a session takes as its history: a value, its JSON text, or messages."""


class _Reading:
    """A conversation while it is read."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.system: list[str] = []
        self._tools: dict[str, str] = {}

    def add_answer(self, text: str, calls: Sequence[ToolCall]) -> None:
        self._tools |= {call.id: call.tool for call in calls}
        self.messages.append(AssistantMessage(text, tuple(calls)))

    def add_result(self, call_id: Any, text: str, where: str, *, success: bool) -> None:
        if not isinstance(call_id, str) or call_id not in self._tools:
            raise ConfigError(f"history: {where} answers the call {call_id!r}, which nobody made")
        self.messages.append(ToolMessage(call_id, self._tools[call_id], text, success))

    def finish(self) -> MessageHistory:
        check_messages(self.messages)
        return MessageHistory(tuple(self.messages), "\n\n".join(filter(None, self.system)))


def _to_openai_answer(message: AssistantMessage, names: Mapping[str, str]) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    if message.calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": names[call.tool], "arguments": call.arguments},
            }
            for call in message.calls
        ]
    elif not message.text:
        written["content"] = ""
    return written


def _read_openai_calls(found: Any, where: str) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for one in _read_objects(found, where):
        function = one.get("function")
        if not isinstance(function, Mapping):
            raise ConfigError(
                f"history: {where} has a call of the type {one.get('type')!r}",
                hint="only calls of functions can be imported",
            )
        members = cast("Mapping[str, Any]", function)
        calls.append(
            ToolCall(
                _read_string(one, "id", where),
                _read_string(members, "name", where),
                _read_string(members, "arguments", where),
            )
        )
    return calls


def _to_blocks(message: AssistantMessage, names: Mapping[str, str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.text:
        blocks.append({"type": "text", "text": message.text})
    for call in message.calls:
        blocks.append(
            {
                "type": "tool_use",
                "id": call.id,
                "name": names[call.tool],
                "input": read_arguments(call.arguments) or {},
            }
        )
    return blocks or [{"type": "text", "text": "(no answer)"}]


def _to_openai_media(media: list[MediaReference]) -> dict[str, Any]:
    text = "[what the tools returned besides text]"
    placed = tuple([replace(one, at=len(text)) for one in media])
    return _to_openai_message(UserMessage(text, placed))


def _to_openai_message(message: UserMessage) -> dict[str, Any]:
    # Imported here: conversations of text alone need no part of a model client.
    from ferrule.models.openai.chat_exchange import encode_chat_content

    return parse_json(encode_chat_content(message))


def _to_content(message: UserMessage | ToolMessage) -> list[Any]:
    from ferrule.models.media_encoding import encode_content

    blocks = encode_content(
        "Messages",
        message.text,
        message.media,
        lambda text: encode_json({"type": "text", "text": text}),
    )
    return [parse_json(block) for block in blocks]


def _to_tool_result(message: ToolMessage) -> dict[str, Any]:
    content = _to_content(message) if message.media else message.text
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": message.call_id,
        "content": content,
    }
    return block if message.success else {**block, "is_error": True}


def _take_user_blocks(reading: _Reading, blocks: list[Mapping[str, Any]], where: str) -> None:
    texts: list[str] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            text = _read_text(block.get("content"), where)
            failed = bool(block.get("is_error"))
            reading.add_result(block.get("tool_use_id"), text, where, success=not failed)
        else:
            texts.append(_read_text([block], where))
    if texts:
        reading.messages.append(UserMessage("\n\n".join(texts)))


def _take_assistant_blocks(reading: _Reading, blocks: list[Mapping[str, Any]], where: str) -> None:
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            arguments = encode_json(block.get("input") or {})
            calls.append(
                ToolCall(
                    _read_string(block, "id", where), _read_string(block, "name", where), arguments
                )
            )
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(_read_text([block], where))
    reading.add_answer("\n\n".join(texts), calls)


def _read_text(content: Any, where: str) -> str:
    """Return the text of a message's content: text, or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts: list[str] = []
    for part in _read_objects(content, where):
        if part.get("type") != "text":
            raise ConfigError(
                f"history: {where} has content of the type {part.get('type')!r}",
                hint="only text can be imported; leave the part out or describe it",
            )
        parts.append(_read_string(part, "text", where))
    return "\n\n".join(parts)


def _read_objects(found: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise ConfigError(f"history: {where} has {type(found).__name__} where a list belongs")
    listed = cast("Sequence[Any]", found)
    for one in listed:
        if not isinstance(one, Mapping):
            raise ConfigError(f"history: {where} has {type(one).__name__} where an object belongs")
    return list(cast("Sequence[Mapping[str, Any]]", listed))


def _read_string(found: Mapping[str, Any], name: str, where: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"history: {where}: `{name}` is {type(value).__name__}, not text")
    return value
