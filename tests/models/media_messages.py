"""Messages with media: shared by the tests of requests, uploads and golden requests."""

from __future__ import annotations

from hashlib import sha256

from ferrule.core.calls import ToolCall
from ferrule.core.media import LoadedMedia, MediaKind
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from media_samples import PDF, make_png


def load(kind: MediaKind, mime: str, data: bytes, at: int = 0, name: str = "") -> LoadedMedia:
    size = 2 if kind == "image" else 0
    digest = sha256(data).hexdigest()
    return LoadedMedia(kind, mime, digest, len(data), at, name, size, size, lambda: data)


def image(at: int = 0) -> LoadedMedia:
    return load("image", "image/png", make_png(), at)


def pdf(at: int = 0) -> LoadedMedia:
    return load("document", "application/pdf", PDF, at, "paper.pdf")


def history(*, with_pdf: bool = True) -> list[Message]:
    """A picture in a question, and a picture (and a PDF) in the second of two results."""
    returned = (image(4), pdf(4)) if with_pdf else (image(4),)
    asked = ToolCall("t00000001", "math::add", "{}"), ToolCall("t00000002", "math::add", "{}")
    return [
        UserMessage("before\nafter", (image(6),)),
        AssistantMessage("", asked),
        ToolMessage("t00000001", "math::add", "3"),
        ToolMessage("t00000002", "math::add", "shot", media=returned),
    ]
