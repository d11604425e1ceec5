"""Runs tesseract on an image that it gets on its standard input, confined (`confined_program`).

Output is tesseract's TSV: one row for each page, block, paragraph, line and word (level 5).
"""

from __future__ import annotations

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import TrustedProgram
from ferrule.sandbox.command import Capture, CommandResult
from ferrule.sandbox.policy import ResourceLimits
from ferrule.toolkits.confined_program import (
    EmptyFolder,
    describe_failure,
    find_confined,
    open_empty_folder,
)
from ferrule.tools.context import Context

from .recognizer import MAX_SECONDS, Recognized, Recognizer, Word

MAX_OUTPUT = 8 * 1024 * 1024
"""Most bytes of TSV."""
BOUNDS = ResourceLimits(memory=2 * 1024**3, processes=64, file_size=64 * 1024**2)
INSTALL_HINT = "`apt install tesseract-ocr` or `brew install tesseract`"
_WORD_LEVEL = "5"
_COLUMNS = 12
# One thread: the result must not depend on the number of processors, nor may it take all.
_ENVIRONMENT = {"OMP_THREAD_LIMIT": "1"}


class Tesseract(Recognizer):
    """The program `tesseract` of the PATH, 4 or later."""

    async def recognize(self, image: bytes, language: str, context: Context) -> Recognized:
        program = find_confined(["tesseract"], context, INSTALL_HINT)
        async with open_empty_folder(context, BOUNDS) as folder:
            version = await _read_version(folder, program)
            words = await _read_words(folder, program, image, language)
            return Recognized(words, "tesseract", version, folder.sandbox.protections().backend)


async def _read_version(folder: EmptyFolder, program: TrustedProgram) -> str:
    output = Capture(4096, 0)
    await folder.run(
        program,
        ["--version"],
        output=output,
        errors=output,
        seconds=MAX_SECONDS,
        environment=_ENVIRONMENT,
    )
    words = output.text().split() or ["", "unknown"]
    return words[1]


async def _read_words(
    folder: EmptyFolder, program: TrustedProgram, image: bytes, language: str
) -> tuple[Word, ...]:
    output = bytearray()
    errors = Capture(2048, 2048)

    def keep(data: bytes) -> bool:
        output.extend(data)
        return len(output) <= MAX_OUTPUT

    ended = await folder.run(
        program,
        ["stdin", "stdout", "-l", language, "tsv"],
        output=keep,
        errors=errors,
        seconds=MAX_SECONDS,
        stdin=image,
        environment=_ENVIRONMENT,
    )
    if ended.timed_out:
        raise ToolFailed(
            ErrorType.TIMEOUT,
            f"no text was read within {MAX_SECONDS:g} seconds; try a smaller image",
        )
    if ended.stopped_by_sink:
        raise ToolFailed(
            ErrorType.LIMIT, f"the text is more than {MAX_OUTPUT} bytes; read parts of the image"
        )
    if ended.exit_code != 0:
        raise _error(errors, ended, language)
    return tuple(parse_words(output.decode("utf-8", "replace")))


def _error(errors: Capture, ended: CommandResult, language: str) -> ToolFailed:
    complaint = errors.text()
    if "Failed loading language" in complaint or "Error opening data file" in complaint:
        return ToolFailed(
            ErrorType.NOT_FOUND,
            f"tesseract has no data for the language `{language}` here; ask the person to "
            f"install it (`apt install tesseract-ocr-{language.partition('+')[0]}`), or use `eng`",
        )
    return ToolFailed(
        ErrorType.IO_ERROR,
        f"tesseract could not read the image ({describe_failure(ended, errors)}); try another "
        "format",
    )


def parse_words(table: str) -> list[Word]:
    """Return the words of tesseract's TSV.

    Rows of other levels, empty words and malformed rows are left out. Columns: level, page, block,
    paragraph, line, word, left, top, width, height, confidence, text.
    """
    words: list[Word] = []
    for row in table.splitlines():
        cells = row.split("\t")
        if len(cells) != _COLUMNS or cells[0] != _WORD_LEVEL or not cells[11].strip():
            continue
        page, block, paragraph, line, _, left, top, width, height = (
            int(cell) for cell in cells[1:10]
        )
        place = (page, block, paragraph, line)
        box = (left, top, width, height)
        words.append(Word(cells[11].strip(), box, round(float(cells[10]), 2), place[:2], place))
    return words
