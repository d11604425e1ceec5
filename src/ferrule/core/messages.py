r"""Messages: the history that a model reads. Values that are only appended, never changed.

Every model client encodes each message once. System text is not a message here: it belongs to the
session and never changes within it, so that a provider's prefix cache stays valid (see
`engine.agent_parts`).

As JSON, a history is an object with two members, a format of Ferrule's own:

    {"version": 1, "messages": [
        {"role": "user", "text": "How many are left?"},
        {"role": "assistant", "text": "", "calls": [
            {"id": "c1", "tool": "stock", "arguments": "{\"item\":\"bolt\"}"}]},
        {"role": "tool", "call_id": "c1", "tool": "stock", "text": "7", "success": true},
        {"role": "assistant", "text": "Seven."}]}

A user or tool message may have `media`, a list of references (`core.media`); the bytes are not
part of the messages. `arguments` is JSON text exactly as the model wrote it. `reasoning` and `raw`
of an assistant message (the provider's own blocks, which only the same model is sent again) are
left out if empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from .calls import ToolCall, encode_json, parse_json
from .errors import ConfigError
from .media import MediaReference
from .value_class import frozen


@frozen
class UserMessage:
    """A person's message, or context that a person added (`/read`, piped standard input).

    `media` stand in the text at their places (`core.media.split_content`).
    """

    text: str
    media: tuple[MediaReference, ...] = ()


@frozen
class AssistantMessage:
    """A model's answer.

    `raw` keeps the provider's own blocks (JSON text) if they must be replayed byte for byte.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    raw: str | None = None


@frozen
class ToolMessage:
    """The text of one result. Always follows the assistant message that made the call.

    What the tool returned besides text is `media`, which follow the text.
    """

    call_id: str
    tool: str
    text: str
    success: bool = True
    media: tuple[MediaReference, ...] = ()


Message = UserMessage | AssistantMessage | ToolMessage


def find_sent_result(history: Sequence[Message], call_id: str, earlier: str) -> str:
    """Return the text of an earlier call's result in a history; empty if it is not there.

    Also empty if the call that asks is not one of the last answer: what it returns is then not
    read beside this history.
    """
    answers = (one for one in reversed(history) if isinstance(one, AssistantMessage))
    last = next(answers, None)
    if last is None or all(call.id != call_id for call in last.calls):
        return ""
    results = (one for one in reversed(history) if isinstance(one, ToolMessage))
    return next((one.text for one in results if one.call_id == earlier), "")


REFUSED = "[left out: the provider's content filter refused {what}]"
REFUSED_CODE = "content_filter"
"""The code of an error of a provider that refused what it was sent, or withheld its answer."""
REFUSED_HINT = "what it refused is not sent again; say it in other words, or ask another model"


def leave_out_refused(history: Sequence[Message], kept: int) -> list[Message]:
    """Return a history after a provider refused it: without the text that it had not had before.

    That is what follows the last answer. It would be refused with each further message. The
    messages stay in their places, since calls need results.

    Args:
        history: What was sent.
        kept: How many messages at the start stay, whatever they are: a summary of earlier ones.
    """
    start = len(history)
    while start > kept and not isinstance(history[start - 1], AssistantMessage):
        start -= 1
    return [*history[:start], *(_leave_out(message) for message in history[start:])]


def _leave_out(message: Message) -> Message:
    if isinstance(message, ToolMessage):
        text = REFUSED.format(what="this result")
        return ToolMessage(message.call_id, message.tool, text, message.success)
    return UserMessage(REFUSED.format(what="this message"))


VERSION = 1
"""The version of the JSON format. Later ones read it."""


def encode_messages(messages: Iterable[Message]) -> str:
    """Return messages as compact JSON text."""
    return encode_json({"version": VERSION, "messages": [_to_object(one) for one in messages]})


def decode_messages(text: str) -> tuple[Message, ...]:
    """Return the messages of JSON text that `encode_messages` wrote.

    Raises:
        ConfigError: It is not of this format, or not a history that a provider would take.
    """
    try:
        found = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"history: it is not JSON: {error}") from error
    if not isinstance(found, dict) or "messages" not in found:
        raise ConfigError(
            "history: there is no `messages`",
            hint='it begins with {"version": 1, "messages": [...]}, as `RunResult.messages` is',
        )
    history = cast("dict[str, Any]", found)
    version = history.get("version")
    if version != VERSION:
        raise ConfigError(f"history: version {version!r} is not known; this is version {VERSION}")
    if not isinstance(history["messages"], list):
        raise ConfigError(f"history: `messages` is {_describe(history['messages'])}, not a list")
    objects = cast("list[Any]", history["messages"])
    messages = tuple(_from_object(index, one) for index, one in enumerate(objects, 1))
    check_messages(messages)
    return messages


def check_messages(messages: Sequence[Message]) -> None:
    """Check that a provider would take a history: each call is followed by its one result.

    Raises:
        ConfigError: Names the message, counted from 1, and the call.
    """
    open_calls: dict[str, str] = {}
    seen: set[str] = set()
    for index, message in enumerate(messages, 1):
        if isinstance(message, ToolMessage):
            if open_calls.pop(message.call_id, None) is None:
                raise ConfigError(
                    f"history: message {index} answers the call `{message.call_id}`, which the "
                    "assistant's message before it did not make, or which is answered already"
                )
            continue
        _require_answers(open_calls, index)
        if isinstance(message, AssistantMessage):
            for call in message.calls:
                if not call.id or call.id in seen:
                    raise ConfigError(
                        f"history: message {index} has a call with the id `{call.id}`",
                        hint="every call needs an id of its own",
                    )
                seen.add(call.id)
                open_calls[call.id] = call.tool
    _require_answers(open_calls, len(messages) + 1)


def _require_answers(open_calls: Mapping[str, str], index: int) -> None:
    for call_id, tool in open_calls.items():
        raise ConfigError(
            f"history: the call `{call_id}` of `{tool}` has no result before message {index}",
            hint="add a tool message with the result, or leave the call out",
        )


def _to_object(message: Message) -> dict[str, Any]:
    if isinstance(message, UserMessage):
        return {"role": "user", "text": message.text, **_write_media(message.media)}
    if isinstance(message, ToolMessage):
        return {
            "role": "tool",
            "call_id": message.call_id,
            "tool": message.tool,
            "text": message.text,
            "success": message.success,
            **_write_media(message.media),
        }
    written: dict[str, Any] = {"role": "assistant", "text": message.text}
    if message.calls:
        written["calls"] = [
            {"id": call.id, "tool": call.tool, "arguments": call.arguments}
            for call in message.calls
        ]
    if message.reasoning:
        written["reasoning"] = message.reasoning
    if message.raw is not None:
        written["raw"] = message.raw
    return written


def _from_object(index: int, found: Any) -> Message:
    if not isinstance(found, dict):
        raise ConfigError(f"history: message {index} is {_describe(found)}, not an object")
    fields = _Fields(f"message {index}", dict(cast("dict[str, Any]", found)))
    role = fields.take("role", str)
    if role == "user":
        message: Message = UserMessage(fields.take("text", str), _read_media(index, fields))
    elif role == "tool":
        message = ToolMessage(
            fields.take("call_id", str),
            fields.take("tool", str),
            fields.take("text", str),
            fields.take("success", bool, True),
            _read_media(index, fields),
        )
    elif role == "assistant":
        message = AssistantMessage(
            fields.take("text", str, ""),
            tuple(_read_call(index, call) for call in fields.take("calls", list, [])),
            fields.take("reasoning", str, ""),
            fields.take("raw", str, None),
        )
    else:
        raise ConfigError(
            f"history: message {index} has the role `{role}`",
            hint="it is user, assistant or tool",
        )
    fields.require_empty()
    return message


def _write_media(media: tuple[MediaReference, ...]) -> dict[str, Any]:
    if not media:
        return {}
    written = [
        {
            name: getattr(one, name)
            for name in ("media_kind", "mime", "sha256", "size", "at", "name")
        }
        | ({"width": one.width, "height": one.height} if one.width else {})
        for one in media
    ]
    return {"media": written}


def _read_media(index: int, message: _Fields) -> tuple[MediaReference, ...]:
    media: list[MediaReference] = []
    for found in message.take("media", list, []):
        owner = f"a medium of message {index}"
        if not isinstance(found, dict):
            raise ConfigError(f"history: {owner} is {_describe(found)}, not an object")
        fields = _Fields(owner, dict(cast("dict[str, Any]", found)))
        kind = fields.take("media_kind", str)
        if kind not in ("image", "audio", "document"):
            raise ConfigError(
                f"history: {owner} has the kind `{kind}`", hint="it is image, audio or document"
            )
        media.append(
            MediaReference(
                kind,
                fields.take("mime", str),
                fields.take("sha256", str),
                fields.take("size", int),
                fields.take("at", int, 0),
                fields.take("name", str, ""),
                fields.take("width", int, 0),
                fields.take("height", int, 0),
            )
        )
        fields.require_empty()
    return tuple(media)


def _read_call(index: int, found: Any) -> ToolCall:
    if not isinstance(found, dict):
        raise ConfigError(f"history: a call of message {index} is {_describe(found)}")
    fields = _Fields(f"a call of message {index}", dict(cast("dict[str, Any]", found)))
    call = ToolCall(
        fields.take("id", str), fields.take("tool", str), fields.take("arguments", str, "{}")
    )
    fields.require_empty()
    return call


class _Fields:
    """The members of one object, taken one by one."""

    def __init__(self, owner: str, members: dict[str, Any]) -> None:
        self._owner = owner
        self._members = members

    def take(self, name: str, kind: type, default: Any = ...) -> Any:
        """Return a member of a type; its default if it is not there."""
        if name not in self._members:
            if default is ...:
                raise ConfigError(f"history: {self._owner} has no `{name}`")
            return default
        value = self._members.pop(name)
        if value is None and default is None:
            return None
        if not isinstance(value, kind):
            raise ConfigError(
                f"history: `{name}` of {self._owner} is {_describe(value)}, not {kind.__name__}"
            )
        return value

    def require_empty(self) -> None:
        """Refuse members that nothing took."""
        for name in self._members:
            raise ConfigError(f"history: {self._owner} has `{name}`, which is not known")


def _describe(value: object) -> str:
    return "null" if value is None else type(value).__name__
