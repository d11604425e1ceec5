"""Media in messages: references to pictures, sounds and documents, and where they stand in a text.

A message and the journal hold references alone. The bytes are in the artifact store, once, under
their hash; what sends them to a model reads them from there (`LoadedMedia`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, cast

from .value_class import frozen, options

MediaKind = Literal["image", "audio", "document"]
"""What a medium is to a model."""


@frozen
class MediaReference:
    """A medium of a message.

    Attributes:
        media_kind: What it is to a model.
        mime: Its media type, found in its bytes.
        sha256: The hash of its bytes (hex), by which the artifact store has them.
        size: The number of its bytes.
        at: How many characters of the message's text stand before it.
        name: The file name that a model is shown; "" if it has none.
        width: Pixels of a picture; 0 for others.
        height: Pixels of a picture; 0 for others.
    """

    media_kind: MediaKind
    mime: str
    sha256: str
    size: int
    at: int = 0
    name: str = ""
    width: int = 0
    height: int = 0

    @property
    def reference(self) -> str:
        """The name of its artifact."""
        return f"art-{self.sha256}"

    def describe(self) -> str:
        """Return a caption: what stands in place of the medium where it cannot be shown."""
        measures = f", {self.width}x{self.height}" if self.width else ""
        name = f" {self.name}" if self.name else ""
        return f"[{self.media_kind}{name}: {self.mime}{measures}, {self.size} bytes]"


@frozen
class LoadedMedia(MediaReference):
    """A medium whose bytes can be read, as model clients get it.

    Attributes:
        load: Returns the bytes.
        in_result: Whether a tool returned it. A model that cannot be shown it is told so then; what
            a person gave is an error.
        text: What was read in a picture for a model that sees none; it is sent in its place.
    """

    load: Callable[[], bytes] = bytes
    in_result: bool = False
    text: str = ""


def load_media(
    one: MediaReference,
    read: Callable[[MediaReference], bytes],
    *,
    in_result: bool = False,
    text: str = "",
) -> LoadedMedia:
    """Return a medium whose bytes `read` returns when they are asked for; see `LoadedMedia`."""
    return LoadedMedia(
        one.media_kind,
        one.mime,
        one.sha256,
        one.size,
        one.at,
        one.name,
        one.width,
        one.height,
        lambda: read(one),
        in_result,
        text,
    )


def split_content(text: str, media: Sequence[MediaReference]) -> list[str | MediaReference]:
    """Return a message's content in order: texts, none of them blank, and media."""
    parts: list[str | MediaReference] = []
    start = 0
    for one in media:
        parts += _list_text(text[start : one.at])
        parts.append(one)
        start = max(start, one.at)
    return parts + _list_text(text[start:])


def _list_text(text: str) -> list[str]:
    text = text.strip("\n")
    return [text] if text.strip() else []


def shift_media(media: tuple[MediaReference, ...], characters: int) -> tuple[MediaReference, ...]:
    """Return media with so many characters more before them."""
    if not characters:
        return media
    return tuple([replace(one, at=one.at + characters) for one in media])


def add_captions(text: str, media: Sequence[MediaReference]) -> str:
    """Return a message's text with a caption and the reference in place of each medium."""
    shown = [
        part if isinstance(part, str) else f"{part.describe()[:-1]}, {part.reference}]"
        for part in split_content(text, media)
    ]
    return "\n".join(shown)


_TEXT_BYTES_PER_TOKEN = 3.5
_PDF_BYTES_PER_TOKEN = 40
_AUDIO_BYTES_PER_TOKEN = 500


def estimate_media_tokens(media: Sequence[MediaReference]) -> int:
    """Return roughly how many tokens media take.

    Pictures by the formula that Anthropic publishes (pixels / 750), bounded as providers scale
    them down; other kinds by their size.
    """
    return sum(_estimate(one) for one in media)


def _estimate(one: MediaReference) -> int:
    if one.media_kind == "image":
        return min(max(one.width * one.height // 750, 258), 2600)
    if one.media_kind == "audio":
        return one.size // _AUDIO_BYTES_PER_TOKEN + 1
    per_token = _TEXT_BYTES_PER_TOKEN if one.mime.startswith("text/") else _PDF_BYTES_PER_TOKEN
    return int(one.size / per_token) + 1


class Media:
    """A picture, a sound or a document, whichever its content is; see also the three below.

    Attributes:
        path: Where its bytes are; "" if they are given or elsewhere.
        data: Its bytes, if they were given.
        artifact: The reference of the session's artifact that has its bytes, else "".
        url: The http or https address that has its bytes, else "".
        name: The file name that a model is shown.
        max_side: Pixels of a side, to which a larger picture is scaled down; 0: it stays as it is.
    """

    media_kind: ClassVar[MediaKind | None] = None
    """What its content must be; None takes any kind."""

    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: str = "",
        artifact: str = "",
        url: str = "",
        name: str = "",
    ) -> None:
        if sum((data is not None, bool(path), bool(artifact), bool(url))) != 1:
            raise TypeError(f"{type(self).__name__}: give bytes, a path, an artifact or a URL")
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]  given by a program
            raise TypeError(f"{type(self).__name__}: {type(data).__name__} is given, not bytes")
        self.data = None if data is None else bytes(data)
        self.path = path
        self.artifact = artifact
        self.url = url
        self.name = name or path.rpartition("/")[2]
        self.max_side = 0

    @classmethod
    def from_path(cls, path: object, *, name: str = "") -> Self:
        """Return the content of a file.

        An agent with a workspace opens it there, like any tool would; protected names are refused
        everywhere.
        """
        return cls(path=str(path), name=name)

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "") -> Self:
        """Return content that is in memory."""
        return cls(data, name=name)

    @classmethod
    def from_artifact(cls, reference: str, *, name: str = "") -> Self:
        """Return what the session has kept as an artifact (`art-…`)."""
        return cls(artifact=reference, name=name)

    @classmethod
    def from_url(cls, url: str, *, name: str = "") -> Self:
        """Return what an http or https address has.

        It is fetched once, when the message or the result is taken, by the rules of scripts'
        requests (`engine.web`): no credentials, only hosts of the public internet, or those that
        `MediaOptions.domains` lists. No address is passed on to a provider.
        """
        return cls(url=url, name=name or re.split(r"[?#]", url)[0].rpartition("/")[2])

    def with_data(self, data: bytes) -> Self:
        """Return it with the bytes that its address led to, and without the address."""
        fetched = copy(self)
        fetched.url = ""
        fetched.data = data
        return fetched

    def __repr__(self) -> str:
        source = self.path or self.artifact or self.url or f"{len(self.data or b'')} bytes"
        return f"{type(self).__name__}({source})"


class Image(Media):
    """A picture: PNG, JPEG, WebP or GIF."""

    media_kind = "image"

    def scale_down(self, max_side: int) -> Image:
        """Return this picture, to be scaled down if a side has more pixels (`ferrule[pictures]`).

        Pictures are scaled only on request.
        """
        if max_side < 1:
            raise ValueError(f"max_side = {max_side}: must be at least 1")
        scaled = copy(self)
        scaled.max_side = max_side
        return scaled


class Audio(Media):
    """A sound: WAV, MP3, FLAC, Ogg or M4A, of which each provider takes some."""

    media_kind = "audio"


class Document(Media):
    """A document: PDF or text, and Word, Excel and PowerPoint where a provider takes them."""

    media_kind = "document"


@options
class MediaOptions:
    """How sessions take media in; an agent has it among its `resources`.

    Attributes:
        domains: The hosts from which media are fetched, as in the setting
            `network.allowed_domains`. Without any: those of the public internet.
        max_side: Pixels of a side, to which larger pictures are scaled down; 0: none is scaled.
        ocr: Whether models that see no pictures get the text in them, read by the tool
            `vision::ocr`, which the agent must have. Otherwise such a picture is an error.
    """

    domains: tuple[str, ...] = ()
    max_side: int = 0
    ocr: bool = False


Content = str | Sequence[str | Media]
"""What a message may be: text, or a list of texts and media."""


def has_media(value: Any) -> bool:
    """Return whether a tool returned a medium, alone or in a list."""
    if isinstance(value, Media):
        return True
    if not isinstance(value, list | tuple):
        return False
    return any(isinstance(one, Media) for one in cast("Sequence[Any]", value))
