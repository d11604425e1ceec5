"""`vision::pdf_page`: a page of a PDF as a picture, drawn by `pdftoppm` (Poppler).

The document is read here, by the workspace's own rules, and passed on as bytes: the program sees no
workspace and reaches no network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.media import Image
from ferrule.engine.session_media import read_input
from ferrule.sandbox.command import Capture, CommandResult
from ferrule.sandbox.policy import ResourceLimits
from ferrule.toolkits.confined_program import (
    describe_failure,
    find_confined,
    open_empty_folder,
)
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS
from ferrule.tools.media_types import MAX_BYTES, MediaInvalid, detect_type

MAX_SECONDS = 30.0
"""Time for one page, in seconds."""
BOUNDS = ResourceLimits(memory=2 * 1024**3, processes=64, file_size=64 * 1024**2)
SIZES = range(200, 4001)
_INSTALL_HINT = "`apt install poppler-utils` or `brew install poppler`"
_LAST_PAGE = re.compile(r"after the last page \((\d+)\)")


def _impossible(values: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    page = values.get("page")
    if page is not None and page < 1:
        problems.append(f"`page` counts from 1, found {page}")
    size = values.get("size")
    if size is not None and size not in SIZES:
        problems.append(f"`size` must be from {SIZES[0]} to {SIZES[-1]}, found {size}")
    return problems


@tool(
    namespace="vision",
    side_effect="read",
    risk="medium",
    timeout=MAX_SECONDS + 15,
    impossible=_impossible,
    examples=[
        {
            "request": "What is in the chart on page 3 of report.pdf?",
            "arguments": {"document": "report.pdf", "page": 3},
        }
    ],
)
async def pdf_page(
    document: Annotated[str, READS, "The path of a PDF, or the name of an artifact (`art-…`)."],
    context: Context,
    page: Annotated[int, "Which page, from 1."] = 1,
    size: Annotated[int, "Pixels of its longer side."] = 1568,
) -> Image:
    """Draw a page of a PDF and return the picture: for charts, scans and layout. Text alone is read
    more cheaply by other tools.
    """
    content, name = await read_input(document, context)
    _check_is_pdf(content, name)
    program = find_confined(["pdftoppm"], context, _INSTALL_HINT)
    picture = bytearray()
    errors = Capture(2048, 2048)

    def keep(data: bytes) -> bool:
        picture.extend(data)
        return len(picture) <= MAX_BYTES

    which = ["-f", str(page), "-l", str(page), "-singlefile"]
    async with open_empty_folder(context, BOUNDS) as folder:
        ended = await folder.run(
            program,
            ["-png", *which, "-scale-to", str(size), "-"],
            output=keep,
            errors=errors,
            seconds=MAX_SECONDS,
            stdin=content,
        )
    if ended.exit_code != 0 or not picture:
        raise _error(ended, errors, name, page)
    stem = name.rpartition("/")[2].removesuffix(".pdf")
    return Image.from_bytes(bytes(picture), name=f"{stem}-{page}.png")


def _check_is_pdf(content: bytes, name: str) -> None:
    try:
        found = detect_type(content, f"`{name}`")
    except MediaInvalid as error:
        raise ToolFailed(ErrorType.PARSE_ERROR, str(error)) from error
    if found.mime != "application/pdf":
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"`{name}` is no PDF: its content is {found.mime}"
        )


def _error(ended: CommandResult, errors: Capture, name: str, page: int) -> ToolFailed:
    if ended.timed_out:
        return ToolFailed(
            ErrorType.TIMEOUT,
            f"page {page} of `{name}` was not drawn within {MAX_SECONDS:g} seconds; try a smaller "
            "`size`",
        )
    if ended.stopped_by_sink:
        return ToolFailed(
            ErrorType.LIMIT, f"the picture has more than {MAX_BYTES} bytes; try a smaller `size`"
        )
    last = _LAST_PAGE.search(errors.text())
    if last is not None:
        return ToolFailed(ErrorType.NOT_FOUND, f"`{name}` has {last[1]} pages, and no page {page}")
    return ToolFailed(
        ErrorType.IO_ERROR,
        f"pdftoppm could not draw page {page} of `{name}` ({describe_failure(ended, errors)})",
    )
