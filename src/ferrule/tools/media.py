"""`Image`, `Audio` and `Document`: what is given to a model, or returned by a tool, besides text.

    await agent.run(["Who sent this?", Image.from_path("invoice.png")])

Each is a source of bytes; nothing is read before the run. What the bytes are is found in them, not
in a name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from ferrule.core.errors import ConfigError
from ferrule.core.media import MediaKind


class Media:
    """A picture, a sound or a document, whichever its content is; see also the three below.

    Attributes:
        path: Where its bytes are; "" if they are given or in an artifact.
        data: Its bytes, if they were given.
        artifact: The reference of the session's artifact that has its bytes, else "".
        name: The file name that a model is shown.
    """

    media_kind: ClassVar[MediaKind | None] = None
    """What its content must be; None takes any kind."""

    def __init__(
        self, data: bytes | None = None, *, path: str = "", artifact: str = "", name: str = ""
    ) -> None:
        if sum((data is not None, bool(path), bool(artifact))) != 1:
            raise ConfigError(
                f"{type(self).__name__}: give bytes, a path or an artifact",
                hint=f'`{type(self).__name__}.from_path("…")`',
            )
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]  given by a program
            raise ConfigError(f"{type(self).__name__}: {type(data).__name__} is given, not bytes")
        self.data = None if data is None else bytes(data)
        self.path = path
        self.artifact = artifact
        self.name = name or Path(path).name

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], *, name: str = "") -> Self:
        """Return the content of a file.

        An agent with a workspace opens it there, like any tool would; protected names are refused
        everywhere.
        """
        return cls(path=os.fspath(path), name=name)

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "") -> Self:
        """Return content that is in memory."""
        return cls(data, name=name)

    @classmethod
    def from_artifact(cls, reference: str, *, name: str = "") -> Self:
        """Return what the session has kept as an artifact (`art-…`)."""
        return cls(artifact=reference, name=name)

    def __repr__(self) -> str:
        source = self.path or self.artifact or f"{len(self.data or b'')} bytes"
        return f"{type(self).__name__}({source})"


class Image(Media):
    """A picture: PNG, JPEG, WebP or GIF."""

    media_kind = "image"


class Audio(Media):
    """A sound: WAV, MP3, FLAC, Ogg or M4A, of which each provider takes some."""

    media_kind = "audio"


class Document(Media):
    """A document: PDF or text, and Word, Excel and PowerPoint where a provider takes them."""

    media_kind = "document"


Content = str | Sequence[str | Media]
"""What a message may be: text, or a list of texts and media."""


def has_media(value: Any) -> bool:
    """Return whether a tool returned a medium, alone or in a list."""
    if isinstance(value, Media):
        return True
    if not isinstance(value, list | tuple):
        return False
    return any(isinstance(one, Media) for one in cast("Sequence[Any]", value))
