"""`artifact_fetch` and `artifact_read`: the model reads parts of large results.

They see only the artifacts of their own session; an unknown, a malformed and another session's
reference get the same answer. An answer is always smaller than what would be kept as an artifact
itself, and says where to continue.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.storage.artifacts.readers import (
    UnreadableArtifact,
    read_csv_rows,
    read_json_pointer,
    read_last_lines,
    read_lines,
    search_lines,
)
from ferrule.storage.artifacts.store import Artifact, ArtifactMissing, RunArtifacts, Scope
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool
from ferrule.tools.usual_arguments import accept_usual_arguments

from .stubs import HeadAndTail, build_preview, is_text, json_size

DEFAULT_FETCH = 16_384
"""Bytes that `artifact_fetch` returns by default; less where the threshold is lower."""
_MAX_LINE = 2000
"""Characters of a line that are shown among other lines."""
_SPARE = 128

_REFERENCE = Annotated[str, "The reference of the artifact, as a result gave it: `art-…`."]


@tool(side_effect="none", risk="safe", inline=True)
def artifact_fetch(
    context: Context,
    artifact: _REFERENCE,
    offset: Annotated[int, "Byte to begin at."] = 0,
    max_bytes: Annotated[int, "Bytes to read at the most."] = DEFAULT_FETCH,
) -> Any:
    """Read bytes of a large result. Go on at `next_offset`."""
    require_at_least("offset", offset, 0)
    require_at_least("max_bytes", max_bytes, 1)
    kept, scope, found = _find(context, artifact)
    most = min(max_bytes, kept.read_limit)
    record = _read_range(kept, scope, found, offset, most)
    size = json_size(record)
    while size > kept.read_limit and most > 1:
        # JSON takes up to six bytes for some of them.
        most = max(1, min(most * 3 // 4, most * kept.read_limit // size - _SPARE))
        record = _read_range(kept, scope, found, offset, most)
        size = json_size(record)
    return record


def _read_range(
    kept: RunArtifacts, scope: Scope, artifact: Artifact, offset: int, most: int
) -> dict[str, Any]:
    # Three bytes more on both sides: no character is cut, and none is read twice.
    before = min(3, offset)
    data = kept.store.read(scope, artifact.reference, offset - before, before + most + 3)
    text = is_text(artifact.mime)
    begin = _find_boundary(data, before) if text else before
    end = min(len(data), before + most)
    if text and offset + most < artifact.size:
        end = (
            _find_boundary(data, end)
            if _find_boundary(data, end) > begin
            else min(len(data), end + 3)
        )
    part = data[begin:end]
    stop = offset - before + end
    record: dict[str, Any] = {
        "artifact": artifact.reference,
        "mime": artifact.mime,
        "size_bytes": artifact.size,
        "offset": offset - before + begin,
        "content": part.decode("utf-8", "replace") if text else base64.b64encode(part).decode(),
        "truncated": stop < artifact.size,
    }
    if not text:
        record["encoding"] = "base64"
    if stop < artifact.size:
        record["next_offset"] = stop
    return record


def _find_boundary(data: bytes, index: int) -> int:
    """Return the start of the character that the byte at `index` is in the middle of.

    Returns `index` if it is not inside a character.
    """
    start = index
    while start > 0 and index - start < 3 and start < len(data) and data[start] & 0xC0 == 0x80:
        start -= 1
    return start if start < len(data) and data[start] >= 0xC0 else index


@tool(side_effect="none", risk="safe", inline=True)
def artifact_read(
    context: Context,
    artifact: _REFERENCE,
    mode: Annotated[
        Literal["lines", "tail", "grep", "json", "rows"],
        "lines: from `start` on; tail: the last `count` lines; grep: lines that fit `pattern`; "
        "json: the value at `pointer`; rows: of CSV, from `start` on.",
    ] = "lines",
    start: Annotated[int, "The first line or row, counted from 1."] = 1,
    count: Annotated[int, "Lines, matches or rows at the most."] = 200,
    pattern: Annotated[str, "For grep: a regular expression."] = "",
    pointer: Annotated[
        str, "For json: a JSON pointer such as `/items/0/name`; empty is the whole."
    ] = "",
) -> Any:
    """Read parts of a large result: lines, its end, matches, JSON, rows of CSV."""
    require_at_least("start", start, 1)
    require_at_least("count", count, 1)
    if mode == "grep" and not pattern:
        raise RetryCall("`pattern` is empty; say what to look for, as a regular expression")
    kept, scope, found = _find(context, artifact)
    record: dict[str, Any] = {"artifact": found.reference, "size_bytes": found.size}
    pieces = kept.store.read_chunks(scope, found.reference)
    try:
        if mode == "tail":
            return record | _read_tail(kept, scope, found, count)
        if mode == "json":
            return record | _read_pointer(
                found,
                read_json_pointer(pieces, found.size, pointer),
                pointer,
                kept.read_limit,
            )
        if mode == "rows":
            return record | _read_rows(pieces, start, count, kept.read_limit)
        return record | _read_lines(
            pieces, pattern if mode == "grep" else "", start, count, kept.read_limit
        )
    except UnreadableArtifact as error:
        raise ToolFailed(ErrorType.VALIDATION_FAILED, f"`{found.reference}`: {error}") from error
    except ArtifactMissing:
        raise missing_artifact(artifact) from None


def require_at_least(name: str, value: int, low: int) -> None:
    """Raise RetryCall if a number is too small."""
    if value < low:
        raise RetryCall(f"`{name}` must be at least {low}, found {value}")


def missing_artifact(reference: str) -> ToolFailed:
    """Return the one error for all references that do not exist."""
    said = (
        f"there is no artifact `{reference[:80]}`; use a reference that a result of this session "
        "gave, or run the call again"
    )
    return ToolFailed(ErrorType.NOT_FOUND, said)


def _find(context: Context, reference: str) -> tuple[RunArtifacts, Scope, Artifact]:
    kept = context.resource(RunArtifacts)
    scope = Scope.from_identity(context.identity)
    try:
        return kept, scope, kept.store.find(scope, reference)
    except ArtifactMissing:
        raise missing_artifact(reference) from None


class _AnswerRoom:
    """Tells whether another item fits an answer, by number and by size as JSON."""

    def __init__(self, count: int, room: int) -> None:
        self._count = count
        self._left = room - 4 * _SPARE

    def __call__(self, item: Any) -> bool:
        self._count -= 1
        self._left -= json_size(item) + 16
        return self._count >= 0 and self._left >= 0


def _shorten(fits: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda line: fits(shorten_line(line))


def shorten_line(line: str) -> str:
    """Return a line as it is shown among others."""
    if len(line) <= _MAX_LINE:
        return line
    return f"{line[:_MAX_LINE]}… [{len(line)} characters; artifact_fetch reads them]"


def _read_lines(
    pieces: Iterable[bytes], pattern: str, start: int, count: int, room: int
) -> dict[str, Any]:
    fits = _shorten(_AnswerRoom(count, room))
    read = (
        search_lines(pieces, pattern, start, fits) if pattern else read_lines(pieces, start, fits)
    )
    if pattern:
        found: dict[str, Any] = {
            "matches": [{"line": number, "text": shorten_line(text)} for number, text in read.found]
        }
    else:
        found = {"start": start, "content": "\n".join(shorten_line(text) for _, text in read.found)}
        found["lines"] = len(read.found)
    if read.next:
        found["next_start"] = read.next
    if read.out_of_time:
        found["stopped"] = "out of time; continue at next_start"
    return found


def _read_tail(kept: RunArtifacts, scope: Scope, artifact: Artifact, count: int) -> dict[str, Any]:
    begin = max(0, artifact.size - kept.read_limit)
    data = kept.store.read(scope, artifact.reference, begin, kept.read_limit)
    found, cut = read_last_lines(data, begin == 0, count)
    fits = _shorten(_AnswerRoom(count, kept.read_limit))
    shown: list[str] = []
    for line in reversed(found):
        if not fits(line):
            cut = True
            break
        shown.append(shorten_line(line))
    return {"content": "\n".join(reversed(shown)), "lines": len(shown), "begins_earlier": cut}


def _read_pointer(artifact: Artifact, value: Any, pointer: str, room: int) -> dict[str, Any]:
    found: dict[str, Any] = {"pointer": pointer, "value": value}
    if json_size(found) <= room - 2 * _SPARE:
        return found
    if isinstance(value, str):
        while json_size(value) > room - 4 * _SPARE:
            value = value[: len(value) * 3 // 4]
        return {**found, "value": value, "truncated": True}
    shown = build_preview(artifact, HeadAndTail(b"", b"", value), room - 4 * _SPARE)
    return {
        **found,
        "value": shown,
        "truncated": True,
        "note": "large parts are left out; name a deeper pointer",
    }


def _read_rows(pieces: Iterable[bytes], start: int, count: int, room: int) -> dict[str, Any]:
    fits = _AnswerRoom(count, room)
    read = read_csv_rows(pieces, start, fits)
    found: dict[str, Any] = {"columns": read.columns, "start": start, "rows": read.rows}
    if json_size(found) > room - _SPARE:
        raise UnreadableArtifact(
            "its header alone does not fit an answer; use lines or artifact_fetch"
        )
    if read.next:
        found["next_start"] = read.next
    if read.out_of_time:
        found["stopped"] = "out of time; continue at next_start"
    return found


TOOLS: tuple[Tool, ...] = tuple(map(accept_usual_arguments, (artifact_fetch, artifact_read)))
