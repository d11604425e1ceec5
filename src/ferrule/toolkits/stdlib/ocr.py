"""`vision::ocr`: the text of an image, with the places of its lines and words.

    image (workspace) -> bytes -> a recognizer (by default the program `tesseract`, confined) ->
    StructuredText

The image is read here, by the workspace's own rules (or, for pictures of messages, from the
session's artifacts), and passed on as bytes: the program that reads it sees no workspace at all,
only an empty folder, and reaches no network (`recognizer`). Another recognizer can be a resource of
the run: an object of a subclass of `Recognizer`. Places are pixels from the top left corner,
`[left, top, width, height]`; confidence is 0 to 100, as the program judges itself.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Annotated, TypedDict

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.engine.session_media import read_input
from ferrule.permissions.filesystem.workspace import READ_LIMIT
from ferrule.tools.context import Context
from ferrule.tools.definition import READS

from .recognizer import MAX_SECONDS, Recognized, Recognizer, Word
from .tesseract import Tesseract
from .typed import typed_tool

MAX_TOKENS = 20_000
TOPIC = "vision.ocr"
"""The topic of the journal note of each call: what was read, by what, and how much was found."""

_FORMATS: tuple[tuple[str, bytes], ...] = (
    ("png", b"\x89PNG\r\n\x1a\n"),
    ("jpeg", b"\xff\xd8\xff"),
    ("gif", b"GIF8"),
    ("bmp", b"BM"),
    ("tiff", b"II*\0"),
    ("tiff", b"MM\0*"),
    ("webp", b"RIFF"),
    ("pnm", b"P1"),
    ("pnm", b"P2"),
    ("pnm", b"P3"),
    ("pnm", b"P4"),
    ("pnm", b"P5"),
    ("pnm", b"P6"),
)


class Token(TypedDict):
    """A word. `block` and `line` are indexes into the lists of the same result."""

    text: str
    box: list[int]
    confidence: float
    block: int
    line: int


class Line(TypedDict):  # noqa: D101  a docstring would become part of the tool's schema
    text: str
    box: list[int]
    confidence: float
    block: int


class Block(TypedDict):
    """Lines that belong together, such as a column or a caption, separated by line breaks."""

    text: str
    box: list[int]


class Source(TypedDict):  # noqa: D101  a docstring would become part of the tool's schema
    path: str
    format: str
    bytes: int
    sha256: str


class Backend(TypedDict):  # noqa: D101  a docstring would become part of the tool's schema
    name: str
    version: str
    language: str
    sandbox: str


class Stats(TypedDict):
    """`confidence` is the mean of all tokens, 0 if there are none.

    `partial`: there were more than `MAX_TOKENS`.
    """

    blocks: int
    lines: int
    tokens: int
    confidence: float
    partial: bool


class StructuredText(TypedDict):
    """The text of an image.

    `_type` is always `StructuredText`; `text` has a line break between lines and an empty line
    between blocks.
    """

    _type: str
    text: str
    blocks: list[Block]
    lines: list[Line]
    tokens: list[Token]
    source: Source
    backend: Backend
    stats: Stats


@typed_tool(
    "vision",
    side_effect="read",
    risk="medium",
    timeout=MAX_SECONDS + 15,
    examples=[
        {"request": "Read the text in screenshot.png", "arguments": {"image": "screenshot.png"}},
        {
            "request": "What does the German sign in sign.jpg say?",
            "arguments": {"image": "sign.jpg", "options": {"language": "deu"}},
        },
    ],
)
async def ocr(
    image: Annotated[
        str | dict[str, str],
        READS,
        "The path of an image of the workspace, or an object with `path`, or with `base64` and "
        "perhaps `name`: PNG, JPEG, TIFF, GIF, BMP, WebP or PNM, up to 10 MB.",
    ],
    context: Context,
    options: Annotated[
        dict[str, str] | None, '{"language": "eng"}: of tesseract\'s names, several joined by `+`.'
    ] = None,
) -> StructuredText:
    """Read the text in an image. Returns the text and its blocks, lines and tokens with places and
    confidence.
    """
    language = _language(options or {})
    content, name = await _read_image(image, context)
    kind = _format(content, name)
    recognized = await _recognizer(context).recognize(content, language, context)
    source = Source(
        path=name,
        format=kind,
        bytes=len(content),
        sha256=sha256(content).hexdigest(),
    )
    found = _structure(recognized, source, language)
    context.note(TOPIC, _journal_note(found))
    return found


async def _read_image(image: str | dict[str, str], context: Context) -> tuple[bytes, str]:
    """Return the bytes of an image, and its name.

    The format is recognized from the bytes, whatever `mime_type` says.
    """
    if isinstance(image, str):
        return await read_input(image, context)
    unknown = image.keys() - {"path", "base64", "name", "mime_type"}
    if unknown:
        raise RetryCall(
            "`image` knows only `path`, `base64`, `name` and `mime_type`, found "
            f"`{min(unknown)[:40]}`"
        )
    path = image.get("path")
    encoded = image.get("base64")
    if (path is None) == (encoded is None):
        raise RetryCall("`image` needs either `path` or `base64`")
    if path is not None:
        return await read_input(path, context)
    if len(encoded or "") > READ_LIMIT * 4 // 3 + 4:
        raise ToolFailed(ErrorType.LIMIT, f"the image is larger than {READ_LIMIT} bytes")
    try:
        content = b64decode(encoded or "", validate=True)
    except ValueError as error:
        raise RetryCall(f"`base64` of the image cannot be decoded: {error}") from error
    return content, image.get("name", "image")


def _recognizer(context: Context) -> Recognizer:
    """Return the recognizer of the run, else tesseract."""
    for resource in context.resources.values():
        if isinstance(resource, Recognizer):
            return resource
    return Tesseract()


def _language(options: dict[str, str]) -> str:
    for name in options:
        if name != "language":
            raise RetryCall(f"`options` knows only `language`, found `{name[:40]}`")
    language = options.get("language", "eng")
    parts = language.split("+")
    # The language becomes an argument of a program and the name of a file that it opens.
    if len(parts) > 5 or not all(_is_language(part) for part in parts):
        raise RetryCall(
            "`language` must be names such as `eng` or `deu+eng`, at most five, found "
            f"`{language[:60]}`"
        )
    return language


def _is_language(name: str) -> bool:
    if not 2 <= len(name) <= 20 or not name.isascii():
        return False
    return name[0].isalpha() and name.replace("_", "").isalnum()


def _format(content: bytes, path: str) -> str:
    for name, start in _FORMATS:
        if content.startswith(start) and (name != "webp" or content[8:12] == b"WEBP"):
            return name
    raise ToolFailed(
        ErrorType.VALIDATION_FAILED,
        f"`{path}` is not an image that can be read (PNG, JPEG, TIFF, GIF, BMP, WebP or "
        "PNM); name another file",
    )


def _structure(recognized: Recognized, source: Source, language: str) -> StructuredText:
    words = recognized.words[:MAX_TOKENS]
    blocks: list[Block] = []
    lines: list[Line] = []
    tokens: list[Token] = []
    for _, of_block in groupby(words, key=lambda word: word.block):
        first = len(lines)
        for _, of_line in groupby(of_block, key=lambda word: word.line):
            _add_line(list(of_line), len(blocks), lines, tokens)
        inside = lines[first:]
        text = "\n".join(line["text"] for line in inside)
        blocks.append(Block(text=text, box=_enclosing_box(line["box"] for line in inside)))
    return StructuredText(
        _type="StructuredText",
        text="\n\n".join(block["text"] for block in blocks),
        blocks=blocks,
        lines=lines,
        tokens=tokens,
        source=source,
        backend=Backend(
            name=recognized.name,
            version=recognized.version,
            language=language,
            sandbox=recognized.sandbox,
        ),
        stats=Stats(
            blocks=len(blocks),
            lines=len(lines),
            tokens=len(tokens),
            confidence=_mean(token["confidence"] for token in tokens),
            partial=len(recognized.words) > len(words),
        ),
    )


def _add_line(words: Sequence[Word], block: int, lines: list[Line], tokens: list[Token]) -> None:
    number = len(lines)
    made = [
        Token(
            text=word.text,
            box=list(word.box),
            confidence=word.confidence,
            block=block,
            line=number,
        )
        for word in words
    ]
    tokens += made
    lines.append(
        Line(
            text=" ".join(token["text"] for token in made),
            box=_enclosing_box(token["box"] for token in made),
            confidence=_mean(token["confidence"] for token in made),
            block=block,
        )
    )


def _enclosing_box(boxes: Iterable[list[int]]) -> list[int]:
    """Return the smallest box that contains all of these."""
    known = list(boxes)
    left = min(box[0] for box in known)
    top = min(box[1] for box in known)
    right = max(box[0] + box[2] for box in known)
    bottom = max(box[1] + box[3] for box in known)
    return [left, top, right - left, bottom - top]


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return round(sum(numbers) / len(numbers), 2) if numbers else 0.0


def _journal_note(found: StructuredText) -> str:
    source = found["source"]
    backend = found["backend"]
    stats = found["stats"]
    return (
        f"{source['path']} ({source['format']}, {source['bytes']} bytes, sha256 "
        f"{source['sha256']}) read by {backend['name']} "
        f"{backend['version']} ({backend['language']}, {backend['sandbox']}): "
        f"{stats['blocks']} blocks, {stats['lines']} lines, "
        f"{stats['tokens']} tokens, confidence {stats['confidence']:g}"
    )
