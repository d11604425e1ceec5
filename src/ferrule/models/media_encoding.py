"""Pictures, sounds and documents in requests: what each protocol takes, and how it is written.

What a protocol does not take is an error before anything is sent; what a tool returned is named in
the text instead, with the reason. Text documents become text with a frame where a protocol has no
form for them, and so does the text that was read in a picture for a model that sees none.

Sources: the API references of OpenAI (Chat Completions, Responses: 50 MB a request), Anthropic
(Messages: 8000 pixels a side, 32 MB a request; 5 MiB of a picture count in base64), Google
(generateContent: inline data of 100 MB a request, 50 MB of a PDF; Vertex AI: 7 MB of a picture),
Amazon Bedrock (Converse: 3.75 MB and 8000 pixels; 4.5 MB of a document, PDFs of newer models
apart), Ollama (/api/chat) and Cohere (chat, version 2). Limits of a whole request, and those that
depend on how many pictures it has, are left to the provider.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring as quote
from typing import Literal

from ferrule.core.errors import ProviderError
from ferrule.core.media import LoadedMedia, MediaKind, MediaReference, split_content
from ferrule.core.value_class import frozen

from .untrusted_text import escape_untrusted

_MIB = 1 << 20
_PICTURES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_PDF = "application/pdf"
_OFFICE = "application/vnd.openxmlformats-officedocument."
_OFFICE_FORMATS = {
    f"{_OFFICE}wordprocessingml.document": "docx",
    f"{_OFFICE}spreadsheetml.sheet": "xlsx",
}
_INVALID_IN_NAME = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")

Protocol = Literal[
    "chat completions", "Responses", "Messages", "generateContent", "Converse", "Ollama", "Cohere"
]


@frozen
class _Support:
    """The media types that a protocol takes, with the most bytes of one; and pixels of a side."""

    mimes: dict[str, int]
    max_side: int = 0
    uploaded: tuple[MediaKind, ...] = ()
    """The kinds that it names by the id of a file that was uploaded."""
    unbounded: tuple[MediaKind, ...] = ()
    """The kinds of which a file may be as large as a session takes it."""


def _limits(mimes: Sequence[str], size: int) -> dict[str, int]:
    return dict.fromkeys(mimes, size)


_SUPPORT: dict[Protocol, _Support] = {
    "chat completions": _Support(
        _limits((*_PICTURES, "audio/wav", "audio/mpeg", _PDF), 32 * _MIB),
        uploaded=("document",),
    ),
    "Responses": _Support(
        _limits((*_PICTURES, _PDF, *_OFFICE_FORMATS), 32 * _MIB), uploaded=("image", "document")
    ),
    "Messages": _Support(
        _limits(_PICTURES, 5 * _MIB * 3 // 4) | _limits((_PDF,), 24_000_000),
        8000,
        uploaded=("image", "document"),
        unbounded=("document",),
    ),
    "generateContent": _Support(
        _limits(_PICTURES[:3], 7_000_000)
        | _limits(("audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", _PDF), 32 * _MIB),
        uploaded=("image", "audio", "document"),
        unbounded=("image", "audio", "document"),
    ),
    "Converse": _Support(
        _limits(_PICTURES, 3_750_000)
        | _limits(tuple(_OFFICE_FORMATS), 4_500_000)
        | _limits((_PDF,), 24_000_000),
        8000,
    ),
    "Ollama": _Support(_limits(_PICTURES[:3], 32 * _MIB)),
    "Cohere": _Support(_limits(_PICTURES, 15_000_000)),
}


def encode_content(
    protocol: Protocol,
    text: str,
    media: Sequence[MediaReference],
    encode_text: Callable[[str], str],
    find_file: Callable[[MediaReference], str] | None = None,
) -> list[str]:
    """Return the content of a message as JSON blocks of a protocol, in order.

    Args:
        protocol: The protocol.
        text: The message's text.
        media: The message's media.
        encode_text: Writes a text as a block.
        find_file: Returns the id of a medium that was uploaded (`media_uploads`), or "".

    Raises:
        ProviderError: The protocol does not take a medium (`media_unsupported`), or not one of
            this size (`media_too_large`).
    """
    blocks: list[str] = []
    for part in split_content(text, media):
        if isinstance(part, str):
            blocks.append(encode_text(part))
            continue
        file = find_file(part) if find_file is not None else ""
        if file:
            blocks.append(_FILE_ENCODERS[protocol](part, file))
            continue
        text = _find_text(part) or _explain_unshown(protocol, part)
        blocks.append(encode_text(text) if text else _ENCODERS[protocol](part))
    return blocks


def can_upload(protocol: Protocol, one: MediaReference) -> bool:
    """Return whether a protocol names a medium like this by the id of a file."""
    support = _SUPPORT[protocol]
    if one.media_kind not in support.uploaded or one.mime not in support.mimes:
        return False
    try:
        _check_side(protocol, one)
    except ProviderError:
        return False
    return one.media_kind in support.unbounded or one.size <= support.mimes[one.mime]


def _find_text(one: MediaReference) -> str:
    """Return what is sent as text in place of a medium, framed; "" if the medium is sent."""
    if one.mime in ("text/plain", "image/svg+xml"):
        return _frame_document(one, read_bytes(one).decode("utf-8", "replace"))
    if isinstance(one, LoadedMedia) and one.text:
        return _frame_document(one, f"[read in a picture that you cannot see]\n{one.text}")
    return ""


def _explain_unshown(protocol: Protocol, one: MediaReference) -> str:
    """Return why what a tool returned is not shown, or "" if it is.

    Raises as `check_media` for what a person gave.
    """
    try:
        check_media(protocol, one)
    except ProviderError as error:
        if isinstance(one, LoadedMedia) and one.in_result:
            return f"[not shown: {error.detail}]"
        raise
    return ""


def write_as_text(text: str, media: Sequence[MediaReference], error: ProviderError) -> str:
    """Return a message for a model that reads text alone.

    Raises:
        ProviderError: `error`, if a person gave a medium that is no text.
    """
    parts: list[str] = []
    for part in split_content(text, media):
        if isinstance(part, str):
            parts.append(part)
            continue
        shown = _find_text(part)
        if not shown and isinstance(part, LoadedMedia) and part.in_result:
            shown = f"[not shown: {error.detail}]"
        if not shown:
            raise error
        parts.append(shown)
    return "\n\n".join(parts)


def check_media(protocol: Protocol, one: MediaReference) -> None:
    """Check that a protocol takes a medium. Raises as `encode_content`."""
    support = _SUPPORT[protocol]
    most = support.mimes.get(one.mime)
    if most is None:
        known = ", ".join(support.mimes)
        raise ProviderError(
            f"{one.describe()} cannot be sent: {protocol} takes no {one.mime}",
            code="media_unsupported",
            hint=f"it takes {known}; ask a model of another provider, or convert it",
        )
    if one.size > most:
        raise ProviderError(
            f"{one.describe()} cannot be sent: the most that {protocol} takes is {most} bytes",
            code="media_too_large",
            hint="scale it down, or give a part of it",
        )
    _check_side(protocol, one)


def _check_side(protocol: Protocol, one: MediaReference) -> None:
    support = _SUPPORT[protocol]
    if support.max_side and max(one.width, one.height) > support.max_side:
        raise ProviderError(
            f"{one.describe()} cannot be sent: the most that {protocol} takes is "
            f"{support.max_side} pixels a side",
            code="media_too_large",
            hint="scale it down",
        )


def read_bytes(one: MediaReference) -> bytes:
    """Return the bytes of a medium. Raises ProviderError if it has none."""
    if not isinstance(one, LoadedMedia):
        raise ProviderError(f"{one.describe()} cannot be sent: only its reference is known")
    return one.load()


def encode_images(text: str, media: Sequence[MediaReference]) -> tuple[str, list[str]]:
    """Return a message as Ollama takes it: its text, and pictures in base64 beside it."""
    parts: list[str] = []
    pictures: list[str] = []
    for part in split_content(text, media):
        if isinstance(part, str):
            parts.append(part)
            continue
        shown = _find_text(part) or _explain_unshown("Ollama", part)
        if shown:
            parts.append(shown)
        else:
            pictures.append(_base64(part))
    return "\n\n".join(parts), pictures


def _frame_document(one: MediaReference, content: str) -> str:
    text = escape_untrusted(content)
    text = re.sub(r"<(\s*/?\s*document\b)", r"&lt;\1", text, flags=re.IGNORECASE)
    name = re.sub(r"[\"<>\n]", "_", one.name)
    return f'<document name="{name}">\n{text}\n</document>'


def _base64(one: MediaReference) -> str:
    return b64encode(read_bytes(one)).decode()


def _data_url(one: MediaReference) -> str:
    return f'"data:{one.mime};base64,{_base64(one)}"'


def _file_name(one: MediaReference) -> str:
    ending = _OFFICE_FORMATS.get(one.mime, "pdf")
    return quote(one.name or f"{one.media_kind}.{ending}")


def _encode_chat(one: MediaReference) -> str:
    if one.media_kind == "image":
        return f'{{"type":"image_url","image_url":{{"url":{_data_url(one)}}}}}'
    if one.media_kind == "audio":
        form = "wav" if one.mime == "audio/wav" else "mp3"
        fields = f'"data":"{_base64(one)}","format":"{form}"'
        return f'{{"type":"input_audio","input_audio":{{{fields}}}}}'
    fields = f'"filename":{_file_name(one)},"file_data":{_data_url(one)}'
    return f'{{"type":"file","file":{{{fields}}}}}'


def _encode_responses(one: MediaReference) -> str:
    if one.media_kind == "image":
        return f'{{"type":"input_image","detail":"auto","image_url":{_data_url(one)}}}'
    return f'{{"type":"input_file","filename":{_file_name(one)},"file_data":{_data_url(one)}}}'


def _encode_messages(one: MediaReference) -> str:
    source = f'{{"type":"base64","media_type":"{one.mime}","data":"{_base64(one)}"}}'
    if one.media_kind == "image":
        return f'{{"type":"image","source":{source}}}'
    title = f',"title":{quote(one.name)}' if one.name else ""
    return f'{{"type":"document","source":{source}{title}}}'


def _encode_inline(one: MediaReference) -> str:
    return f'{{"inlineData":{{"mimeType":"{one.mime}","data":"{_base64(one)}"}}}}'


def _encode_converse(one: MediaReference) -> str:
    source = f'"source":{{"bytes":"{_base64(one)}"}}'
    if one.media_kind == "image":
        return f'{{"image":{{"format":"{one.mime[6:]}",{source}}}}}'
    # A document needs a name of few characters, which differs from the others of a request.
    stem = _INVALID_IN_NAME.sub("-", one.name.rpartition(".")[0])[:100].strip() or "document"
    name = quote(f"{stem} {one.sha256[:8]}")
    form = _OFFICE_FORMATS.get(one.mime, "pdf")
    return f'{{"document":{{"format":"{form}","name":{name},{source}}}}}'


def _encode_cohere(one: MediaReference) -> str:
    return f'{{"type":"image_url","image_url":{{"url":{_data_url(one)}}}}}'


_ENCODERS: dict[Protocol, Callable[[MediaReference], str]] = {
    "chat completions": _encode_chat,
    "Responses": _encode_responses,
    "Messages": _encode_messages,
    "generateContent": _encode_inline,
    "Converse": _encode_converse,
    "Cohere": _encode_cohere,
}


def _name_chat_file(one: MediaReference, file: str) -> str:
    return f'{{"type":"file","file":{{"file_id":{quote(file)}}}}}'


def _name_responses_file(one: MediaReference, file: str) -> str:
    if one.media_kind == "image":
        return f'{{"type":"input_image","detail":"auto","file_id":{quote(file)}}}'
    return f'{{"type":"input_file","file_id":{quote(file)}}}'


def _name_messages_file(one: MediaReference, file: str) -> str:
    source = f'{{"type":"file","file_id":{quote(file)}}}'
    if one.media_kind == "image":
        return f'{{"type":"image","source":{source}}}'
    title = f',"title":{quote(one.name)}' if one.name else ""
    return f'{{"type":"document","source":{source}{title}}}'


def _name_google_file(one: MediaReference, file: str) -> str:
    return f'{{"fileData":{{"mimeType":"{one.mime}","fileUri":{quote(file)}}}}}'


_FILE_ENCODERS: dict[Protocol, Callable[[MediaReference, str], str]] = {
    "chat completions": _name_chat_file,
    "Responses": _name_responses_file,
    "Messages": _name_messages_file,
    "generateContent": _name_google_file,
}
