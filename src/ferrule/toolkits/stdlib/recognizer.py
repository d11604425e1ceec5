"""The interface between `vision::ocr` and a recognizer: bytes of an image in, words out."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ferrule.core.value_class import frozen
from ferrule.tools.context import Context

MAX_SECONDS = 60.0
"""Time for one image, in seconds."""


@frozen
class Word:
    """A word and its place.

    `block` and `line` tell which words belong together: equal for neighbours, in reading order.
    `box` is left, top, width, height in pixels; `confidence` is 0 to 100.
    """

    text: str
    box: tuple[int, int, int, int]
    confidence: float
    block: tuple[int, ...]
    line: tuple[int, ...]


@frozen
class Recognized:
    """The words, the program that found them, and its sandbox (`none`: it ran in this process)."""

    words: tuple[Word, ...]
    name: str
    version: str
    sandbox: str = "none"


class Recognizer(ABC):
    """Recognizes text. Given to an Agent among its `resources`, it replaces tesseract.

    Contract: `recognize` raises ToolFailed with a next step if it cannot; it ends when cancelled,
    leaves nothing behind, and takes at most `recognizer.SECONDS`. `image` is an image of a known
    format, `language` names as tesseract has them.
    """

    @abstractmethod
    async def recognize(self, image: bytes, language: str, context: Context) -> Recognized: ...
