"""The seam between `vision::ocr` and what recognizes text: bytes of an image in, words with places
out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ferrule.tools.context import Context

SECONDS = 60.0
"""Time for one image."""


@dataclass(frozen=True, slots=True)
class Word:
    """`block` and `line` say which words belong together: equal for neighbours, in reading order.
    `box` is left, top, width, height in pixels; `confidence` 0 to 100.
    """

    text: str
    box: tuple[int, int, int, int]
    confidence: float
    block: tuple[int, ...]
    line: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recognized:
    """What was found, by what, and what held it (`none` where it runs in this process)."""

    words: tuple[Word, ...]
    name: str
    version: str
    sandbox: str = "none"


class Recognizer(ABC):
    """Recognizes text. Given to an Agent among its `resources`, it takes the place of tesseract.

    Contract: `recognize` raises ToolFailed where it cannot, with a next step; it ends when
    cancelled, leaves nothing behind, and takes `recognizer.SECONDS` at the most. `image` is an
    image of a known format, `language` names as tesseract has them.
    """

    @abstractmethod
    async def recognize(self, image: bytes, language: str, context: Context) -> Recognized: ...
