"""Keep large results as artifacts, and decide what the model reads instead.

With a threshold, every result of that size or more is kept and the model gets a stub (`stubs`).
Without one, only what exceeds the output limit is kept: the model reads the cut text, and a note
names the artifact for its owner. Nothing here runs for a small result.

Only what the model might have read is kept: hooks on calls see a result before it is kept. A result
too large for them (`HOOK_LIMIT`) is cut for them first, and the part that was cut off is not kept,
because it could not be checked. A result that cannot be kept is cut, and says why.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ferrule.core.calls import ToolResult, encode_json
from ferrule.core.errors import FerruleError
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP, Limits
from ferrule.engine.result_bounds import Bounded, bound_text
from ferrule.engine.threads import run_blocking
from ferrule.models.client import Exchange
from ferrule.models.raw_content_check import LeakCheckedExchange
from ferrule.storage.artifacts.store import (
    CHUNK_SIZE,
    THRESHOLD,
    Artifact,
    ArtifactStore,
    RunArtifacts,
    Scope,
)
from ferrule.storage.locations import create_artifact_store
from ferrule.tools.catalog import Catalog
from ferrule.tools.chunked_output import Chunks
from ferrule.tools.definition import Tool

from .stubs import HEAD_SIZE, TAIL_SIZE, HeadAndTail, build_stub, is_text

HOOK_LIMIT = 262_144
"""Bytes of a result that hooks on calls see as a whole."""
NOTES_MARGIN = 4096
"""The notes of a result count from this many bytes below the threshold."""
_MARK_LENGTH = 400
"""Characters of an artifact's beginning by which its text is recognised."""
_MAX_MARKS = 256
_READ_ON = "[kept as an artifact; read parts with `artifact_read` or `artifact_fetch`]"

T = TypeVar("T")


class ArtifactIntake:
    """Keeps the large results of one session.

    Args:
        artifacts: The store, and the threshold.
        cap: The output limit of a result in bytes.
        readable: Whether the model has tools that read artifacts. Without them a stub would be
            useless: results are cut, and only what exceeds the limit is kept.
    """

    def __init__(self, artifacts: RunArtifacts, cap: int, *, readable: bool) -> None:
        self.artifacts = artifacts if readable else replace(artifacts, threshold=None)
        self.cap = min(cap, OUTPUT_CAP)
        threshold = self.artifacts.threshold
        self.min_kept_size = self.cap + 1 if threshold is None else min(threshold, self.cap + 1)
        """Results of this many bytes or more are kept."""
        self.min_checked_size = (
            self.min_kept_size
            if threshold is None
            else self.min_kept_size - min(NOTES_MARGIN, self.min_kept_size // 2)
        )
        """Results of this many bytes or more may have to be kept, depending on their notes."""
        self.hook_limit = max(self.cap, HOOK_LIMIT)
        self.checked_messages = 0
        """Number of messages of a resumed session that were checked when they were new."""
        self._marks: dict[str, str] = {}

    def trust_messages(self, count: int) -> None:
        """Do not check so many messages of the history again: they were, or are ours."""
        self.checked_messages = count

    def is_large(self, tool: Tool, size: int, notes: Sequence[str]) -> bool:
        """Whether a result is kept, by its size with its notes and by its tool."""
        if tool.inline:
            return False
        if self.artifacts.threshold is not None:
            size += _count_bytes(notes)
        return size >= self.min_kept_size

    def find_repeated(self, text: str) -> str:
        """Return the reference of a kept result whose beginning appears in a text.

        Returns "" if there is none.
        """
        for mark, reference in self._marks.items():
            if mark in text:
                return reference
        return ""

    async def keep(
        self, tool: Tool, value: Any, whole: Bounded, who: Identity, notes: Sequence[str]
    ) -> Bounded:
        """Keep a value if it is large.

        Args:
            tool: The tool that returned the value.
            value: The value.
            whole: The value as `bound_text` has bounded it.
            who: The owner.
            notes: The notes that the result will have.

        Returns:
            The stub, the cut text with a note, or `whole` if the value is small.
        """
        if not self.is_large(tool, whole.size, notes):
            return whole

        def put() -> tuple[Artifact, HeadAndTail]:
            if isinstance(value, str):
                return self._store(tool, _encode_pieces(value), "text/plain", who)
            from ferrule.tools.json_conversion import to_json_value

            known = to_json_value(value)
            return self._store(
                tool, _encode_pieces(encode_json(known)), "application/json", who, known
            )

        return await self._make_stub(lambda: run_blocking(put), whole, notes)

    async def keep_chunks(
        self, tool: Tool, chunks: Chunks, who: Identity, notes: Sequence[str]
    ) -> Bounded:
        """Collect a result that comes in pieces: whole if it is small, else kept.

        Raises what its parts raise.
        """

        def work(parts: Iterator[bytes]) -> Bounded | tuple[Artifact, HeadAndTail]:
            head = take_bytes(parts, self.cap + 1)
            if is_text(chunks.mime) and (tool.inline or not self.is_large(tool, len(head), notes)):
                return cut_text(head, len(head) + sum(map(len, parts)), self.cap)
            return self._store(tool, chain([head], parts), chunks.mime, who)

        return await self._make_stub(lambda: make_stoppable(chunks, work), None, notes)

    async def after_hooks(self, tool: Tool, result: ToolResult, who: Identity) -> ToolResult:
        """Keep what hooks have left of a result, if it is large."""
        if not result.success or result.size + _count_bytes(result.notes) < self.min_checked_size:
            return result
        whole = bound_text(result.data, self.cap)
        kept = await self.keep(tool, result.data, whole, who, result.notes)
        return replace(
            result,
            data=kept.data,
            size=max(kept.size, result.size),
            partial=kept.partial or result.partial,
            notes=(*kept.notes, *result.notes),
        )

    def _store(
        self, tool: Tool, parts: Iterable[bytes], mime: str, who: Identity, value: Any = None
    ) -> tuple[Artifact, HeadAndTail]:
        store = self.artifacts.store
        scope = Scope.from_identity(who)
        artifact = store.put(scope, parts, mime=mime, tool=tool.full_name)
        head = store.read(scope, artifact.reference, 0, HEAD_SIZE)
        tail = store.read(scope, artifact.reference, max(0, artifact.size - TAIL_SIZE), TAIL_SIZE)
        mark = head[: 4 * _MARK_LENGTH].decode("utf-8", "ignore")[:_MARK_LENGTH]
        if is_text(mime) and len(mark) == _MARK_LENGTH:
            self._marks[mark] = artifact.reference
            if len(self._marks) > _MAX_MARKS:
                del self._marks[next(iter(self._marks))]
        return artifact, HeadAndTail(head, tail, value)

    async def _make_stub(
        self,
        work: Callable[[], Awaitable[Bounded | tuple[Artifact, HeadAndTail]]],
        whole: Bounded | None,
        notes: Sequence[str],
    ) -> Bounded:
        try:
            done = await work()
        except (OSError, FerruleError) as error:
            if whole is None:
                raise
            return self._make_cut(whole, error, notes)
        if isinstance(done, Bounded):
            return done
        artifact, ends = done
        if self.artifacts.threshold is None:
            shown = cut_text(ends.head, artifact.size, self.cap) if whole is None else whole
            return replace(
                shown, notes=(*shown.notes, f"[the whole is kept as {artifact.reference}]")
            )
        room = self.min_kept_size - 1 - _count_bytes((_READ_ON, *notes))
        shown = await run_blocking(lambda: build_stub(artifact, ends, room))
        return Bounded(shown, artifact.size, True, (_READ_ON,))

    def _make_cut(self, whole: Bounded, error: Exception, notes: Sequence[str]) -> Bounded:
        """Cut a result that could not be stored."""
        why = f"[it could not be kept: {str(error).splitlines()[0][:200]}]"
        if self.artifacts.threshold is None:
            return replace(whole, notes=(*whole.notes, why))
        most = max(0, self.min_kept_size - 1 - _count_bytes((why, *notes)) - 80)
        less = bound_text(whole.data, most)
        return Bounded(
            less.data,
            whole.size,
            True,
            (f"[output truncated at {most} bytes of {whole.size}]", why),
        )


async def cut_chunks(chunks: Chunks, cap: int) -> Bounded:
    """Collect a result that comes in pieces without keeping it.

    Returns its beginning, and its size in bytes.
    """

    def work(parts: Iterator[bytes]) -> Bounded:
        head = take_bytes(parts, cap + 1)
        size = len(head) + sum(map(len, parts))
        if is_text(chunks.mime):
            return cut_text(head, size, cap)
        return Bounded(f"[{size} bytes of {chunks.mime}, which is not text]", size, True, ())

    return await make_stoppable(chunks, work)


async def make_stoppable(chunks: Chunks, work: Callable[[Iterator[bytes]], T]) -> T:
    """Process the pieces in a thread.

    If it is cancelled, the work ends with the next piece and is undone.
    """
    stopped = threading.Event()

    def read_until_stopped(parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            if stopped.is_set():
                raise InterruptedError("the call was stopped")
            yield part

    def whole() -> T:
        parts = chunks.encode_parts()
        try:
            return work(read_until_stopped(parts))
        finally:
            # A store that refused the rest did not read to the end.
            parts.close()

    try:
        return await run_blocking(whole)
    finally:
        stopped.set()


def take_bytes(parts: Iterator[bytes], least: int) -> bytes:
    """Read `least` bytes from the beginning, or a little more; fewer if there are not as many."""
    head = bytearray()
    for part in parts:
        head += part
        if len(head) >= least:
            break
    return bytes(head)


def cut_text(head: bytes, size: int, cap: int) -> Bounded:
    """Return the beginning of a text of `size` bytes as a result of at most `cap` bytes."""
    # A character that is split by the end of `head` lies past the cap.
    shown = bound_text(head[: cap + 4].decode("utf-8", "replace"), cap)
    partial = size > cap or shown.partial
    notes = (f"[output truncated at {cap} bytes of {size}]",) if partial else ()
    return Bounded(shown.data, size, partial, notes)


def _count_bytes(notes: Sequence[str]) -> int:
    return sum(len(note.encode("utf-8", "replace")) + 1 for note in notes)


def _encode_pieces(text: str) -> Iterator[bytes]:
    """Encode a text piece by piece: its encoded form is never held as a whole."""
    for start in range(0, len(text), CHUNK_SIZE):
        yield text[start : start + CHUNK_SIZE].encode("utf-8", "replace")


def resolve_artifacts(
    given: RunArtifacts | ArtifactStore | str | Path | bool | None, limits: Limits, catalog: Catalog
) -> RunArtifacts:
    """Return what `Storage(artifacts=...)` means; None keeps only what exceeds the output limit.

    The tools that read artifacts are added to the catalog if the model gets stubs.
    """
    if isinstance(given, (str, Path)):
        artifacts = RunArtifacts(create_artifact_store(given))
    elif given is None or isinstance(given, bool):
        artifacts = RunArtifacts(create_artifact_store(None), THRESHOLD if given else None)
    else:
        artifacts = given if isinstance(given, RunArtifacts) else RunArtifacts(given)
    if artifacts.threshold is not None:
        from .tools import TOOLS

        catalog.add(*(tool for tool in TOOLS if tool.name not in catalog))
    least = min(artifacts.threshold or THRESHOLD, limits.max_output_bytes + 1)
    return replace(artifacts, read_limit=least - min(256, least // 2))


def guard_exchange(
    exchange: Exchange, keeper: ArtifactIntake, catalog: Catalog, notice: Callable[[str, str], None]
) -> Exchange:
    """Wrap an exchange so that it never sends what should have been kept.

    See `models.raw_content_check`.
    """
    limit = 2 * OUTPUT_CAP if keeper.artifacts.threshold is None else keeper.min_kept_size
    inline = frozenset(tool.full_name for tool in catalog if tool.inline)
    return LeakCheckedExchange(
        exchange,
        limit,
        inline,
        keeper.find_repeated,
        notice,
        exchange.notices,
        keeper.checked_messages,
    )
