"""Parse a client's `messages` into a system text and a history that every model client accepts.

Parsing is strict: what is not understood is refused by its position (`messages[3].content[1]`),
because a part that is silently left out would be answered as if it had been read. Pictures, sounds
and files are accepted in messages of users, with their bytes in the request: nothing is fetched.
`name` of a message is not used.

System and developer messages become the system text, in their order, wherever they are: a history
has none in its middle here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from ferrule.core.calls import ToolCall
from ferrule.core.media import LoadedMedia, MediaReference
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.core.value_class import frozen
from ferrule.models.answer_building import join_surrogates
from ferrule.tools.media_types import MediaInvalid, decode_medium, detect_type

from .errors import RequestRefused

MAX_MESSAGES = 4096
_SYSTEM = ("system", "developer")
_TEXTS = {"text": "text", "refusal": "refusal"}
"""Kinds of parts that are text, and the field with the text."""


@frozen
class ParsedMessages:
    """What a client said. `system` is empty if it gave no instructions."""

    system: str
    history: tuple[Message, ...]


def parse_messages(value: object) -> ParsedMessages:
    """Parse the `messages` of a request. Raises Refused."""
    if not isinstance(value, list) or not value:
        raise RequestRefused(
            "`messages` must be a list with at least one message", param="messages"
        )
    listed = cast("list[Any]", value)
    if len(listed) > MAX_MESSAGES:
        raise RequestRefused(
            f"{len(listed)} messages are more than {MAX_MESSAGES}", param="messages"
        )
    system: list[str] = []
    reading = _HistoryReader()
    for place, one in enumerate(listed):
        where = f"messages[{place}]"
        fields = require_mapping(one, where)
        if fields.get("role") in _SYSTEM:
            system.append(_text(fields.get("content"), f"{where}.content"))
        else:
            reading.take(fields, where)
    return ParsedMessages("\n\n".join(filter(None, system)), reading.finish())


class _HistoryReader:
    """The history so far. Results follow the calls they answer, in the order of the calls."""

    def __init__(self) -> None:
        self._history: list[Message] = []
        self._asked: dict[str, ToolCall] = {}
        self._answers: dict[str, ToolMessage] = {}

    def take(self, fields: Mapping[str, Any], where: str) -> None:
        role = fields.get("role")
        if role == "tool":
            self._answer(fields, where)
            return
        self._close()
        if role == "user":
            self._history.append(_read_user(fields.get("content"), f"{where}.content"))
        elif role == "assistant":
            self._assistant(fields, where)
        else:
            raise RequestRefused(f"{where} has the unknown role {role!r}", param=f"{where}.role")

    def finish(self) -> tuple[Message, ...]:
        self._close()
        return tuple(self._history)

    def _assistant(self, fields: Mapping[str, Any], where: str) -> None:
        for name, instead in (
            ("function_call", "use `tool_calls`"),
            ("audio", "only text is supported"),
        ):
            if fields.get(name):
                raise RequestRefused(f"{where} has `{name}`; {instead}", param=f"{where}.{name}")
        calls = tuple(
            _call(one, f"{where}.tool_calls[{place}]")
            for place, one in enumerate(
                _require_list(fields.get("tool_calls"), f"{where}.tool_calls")
            )
        )
        content = fields.get("content") if fields.get("content") is not None else ""
        text = _text(content, f"{where}.content") or str(fields.get("refusal") or "")
        if not text and not calls:
            raise RequestRefused(f"{where} has neither `content` nor `tool_calls`", param=where)
        thought = fields.get("reasoning_content")
        self._history.append(
            AssistantMessage(text, calls, thought if isinstance(thought, str) else "")
        )
        self._asked = {call.id: call for call in calls}
        if len(self._asked) != len(calls):
            raise RequestRefused(
                f"two calls of {where} have the same id", param=f"{where}.tool_calls"
            )

    def _answer(self, fields: Mapping[str, Any], where: str) -> None:
        name = fields.get("tool_call_id")
        call = self._asked.get(join_surrogates(name)) if isinstance(name, str) else None
        if call is None or call.id in self._answers:
            raise RequestRefused(
                (
                    f"{where} answers the call {name!r}, which the message before it did not "
                    "make, or which was answered"
                ),
                param=f"{where}.tool_call_id",
            )
        text = _text(fields.get("content"), f"{where}.content")
        self._answers[call.id] = ToolMessage(call.id, call.tool, text)

    def _close(self) -> None:
        missing = [name for name in self._asked if name not in self._answers]
        if missing:
            named = ", ".join(f"`{name}`" for name in missing)
            raise RequestRefused(
                f"calls without an answer (a message of the role `tool`): {named}", param="messages"
            )
        self._history.extend(self._answers[name] for name in self._asked)
        self._asked = {}
        self._answers = {}


def _call(value: object, where: str) -> ToolCall:
    fields = require_mapping(value, where)
    if fields.get("type", "function") != "function":
        raise RequestRefused(
            f"{where} is of the type {fields['type']!r}; only functions are supported",
            param=f"{where}.type",
        )
    function = require_mapping(fields.get("function"), f"{where}.function")
    name = function.get("name")
    arguments = function.get("arguments", "{}")
    id_ = fields.get("id")
    if (
        not isinstance(name, str)
        or not isinstance(arguments, str)
        or not isinstance(id_, str)
        or not id_
    ):
        raise RequestRefused(
            f"{where} needs `id`, and a `function` with `name` and `arguments` as text", param=where
        )
    return ToolCall(join_surrogates(id_), join_surrogates(name), join_surrogates(arguments))


_MEDIA = ("image_url", "input_audio", "file")
"""Kinds of parts with bytes."""


def _read_user(content: object, where: str) -> UserMessage:
    """Return a user's message, with the media at their places between its texts."""
    if isinstance(content, str):
        return UserMessage(join_surrogates(content))
    text = ""
    media: list[MediaReference] = []
    for place, part in enumerate(_require_list(content, where, required=True)):
        here = f"{where}[{place}]"
        fields = require_mapping(part, here)
        if fields.get("type") in _MEDIA:
            media.append(_read_medium(fields, here, len(text)))
        else:
            more = _text([fields], where)
            text += f"\n{more}" if text else more
    return UserMessage(text, tuple(media))


def _read_medium(fields: Mapping[str, Any], where: str, at: int) -> LoadedMedia:
    kind = str(fields["type"])
    inner = require_mapping(fields.get(kind), f"{where}.{kind}")
    name = str(inner.get("filename") or "")[:100]
    value = inner.get({"image_url": "url", "input_audio": "data", "file": "file_data"}[kind])
    if inner.get("file_id"):
        raise RequestRefused(f"{where} names an uploaded file; send its bytes", param=where)
    encoded = value.partition(",")[2] if isinstance(value, str) and value[:5] == "data:" else value
    if kind == "image_url" and encoded is value:
        raise RequestRefused(
            f"{where} is an address, and nothing is fetched here; send a `data:` URL", param=where
        )
    try:
        data = decode_medium(encoded, where)
        found = detect_type(data, where)
    except MediaInvalid as error:
        raise RequestRefused(str(error), param=where) from error
    wanted = {"image_url": "image", "input_audio": "audio"}.get(kind, found.media_kind)
    if wanted != found.media_kind:
        raise RequestRefused(f"{where} is no {wanted}: its content is {found.mime}", param=where)
    digest = sha256(data).hexdigest()
    measures = (found.width, found.height)
    return LoadedMedia(
        found.media_kind, found.mime, digest, len(data), at, name, *measures, lambda: data
    )


def _text(content: object, where: str) -> str:
    """Return a text, or the joined text parts of a list.

    Half a surrogate pair, which no journal can hold, becomes U+FFFD.
    """
    if isinstance(content, str):
        return join_surrogates(content)
    texts: list[str] = []
    for place, part in enumerate(_require_list(content, where, required=True)):
        fields = require_mapping(part, f"{where}[{place}]")
        kind = fields.get("type")
        text = fields.get(_TEXTS[kind]) if isinstance(kind, str) and kind in _TEXTS else None
        if not isinstance(text, str):
            raise RequestRefused(
                f"{where}[{place}] is of the type {kind!r}; only text is supported",
                param=f"{where}[{place}]",
            )
        texts.append(text)
    return join_surrogates("\n".join(texts))


def _require_list(value: object, where: str, *, required: bool = False) -> Sequence[Any]:
    if value is None and not required:
        return ()
    if not isinstance(value, list):
        raise RequestRefused(
            f"{where} must be text or a list" if required else f"{where} must be a list",
            param=where,
        )
    return cast("list[Any]", value)


def require_mapping(value: object, where: str) -> Mapping[str, Any]:
    """Return an object of a request. Raises Refused if it is none."""
    if not isinstance(value, dict):
        raise RequestRefused(f"{where} must be an object", param=where)
    return cast("dict[str, Any]", value)
