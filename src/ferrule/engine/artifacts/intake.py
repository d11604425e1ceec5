"""Large results: kept as artifacts, and what the model reads instead.

With a threshold every result from that size on is kept and the model gets a stub (`stubs`). Without
one only what exceeds the output limit is kept: the model reads the cut text as always, and a note
names the artifact for its owner. Nothing here is entered for a small result.

What is kept is what the model might have read: hooks on calls see a result before it is kept. A
result too large for them (`HOOKED`) is cut for them first, and what was cut off is not kept: it
could not be checked. A result that cannot be kept is cut, and says why.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ferrule.core.calls import Result, compact
from ferrule.core.errors import FerruleError
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP, Limits
from ferrule.engine.result_bounds import Bounded, bound, jsonable
from ferrule.engine.threads import run_blocking
from ferrule.models.client import Exchange
from ferrule.models.leak_check import Guarded
from ferrule.storage.artifacts.store import (
    PIECE,
    THRESHOLD,
    Artifact,
    Artifacts,
    ArtifactStore,
    Scope,
)
from ferrule.storage.locations import artifacts_at
from ferrule.tools.catalog import Catalog
from ferrule.tools.chunked_output import Chunks
from ferrule.tools.definition import Tool

from .stubs import HEAD, TAIL, Ends, is_text, stub

HOOKED = 262_144
"""Bytes of a result that hooks on calls get to see as a whole."""
NOTES = 4096
"""Bytes below the threshold from which on the notes of a result are counted, too."""
_MARK = 400
"""Characters of an artifact's beginning by which its text is known again."""
_MARKS = 256
_READ_ON = "[kept as an artifact; read parts with `artifact_read` or `artifact_fetch`]"

T = TypeVar("T")


class Keeper:
    """One session's. `cap` is the output limit of a result; `readable`: whether the model has tools
    that read artifacts.

    Without them a stub would be a dead end: results are cut, and only what exceeds the limit is
    kept.
    """

    def __init__(self, artifacts: Artifacts, cap: int, *, readable: bool) -> None:
        self.artifacts = artifacts if readable else replace(artifacts, threshold=None)
        self.cap = min(cap, OUTPUT_CAP)
        threshold = self.artifacts.threshold
        self.least = self.cap + 1 if threshold is None else min(threshold, self.cap + 1)
        """Bytes from which on a result is kept."""
        self.near = self.least if threshold is None else self.least - min(NOTES, self.least // 2)
        """Bytes from which on it is worth asking."""
        self.hooked = max(self.cap, HOOKED)
        self.settled = 0
        """Messages of a session that goes on: they were checked when they were new."""
        self._marks: dict[str, str] = {}

    def heavy(self, tool: Tool, size: int, notes: Sequence[str]) -> bool:
        """Whether a result is kept: by its size, with its notes, and what its tool is."""
        if tool.inline:
            return False
        if self.artifacts.threshold is not None:
            size += _bytes(notes)
        return size >= self.least

    def repeated(self, text: str) -> str:
        """The reference of a kept result whose beginning stands in a text, "" if none does."""
        return next((name for mark, name in self._marks.items() if mark in text), "")

    async def keep(
        self, tool: Tool, value: Any, whole: Bounded, who: Identity, notes: Sequence[str]
    ) -> Bounded:
        """A value that `bound` has already bounded (`whole`), kept if it is heavy: the stub, or the
        cut text with a note.
        """
        if not self.heavy(tool, whole.size, notes):
            return whole

        def put() -> tuple[Artifact, Ends]:
            if isinstance(value, str):
                return self._put(tool, _pieces(value), "text/plain", who)
            known = jsonable(value)
            return self._put(tool, _pieces(compact(known)), "application/json", who, known)

        return await self._kept(lambda: run_blocking(put), whole, notes)

    async def gather(
        self, tool: Tool, chunks: Chunks, who: Identity, notes: Sequence[str]
    ) -> Bounded:
        """A result that comes in pieces: whole if it is small, else kept. Raises what its parts
        raise.
        """

        def work(parts: Iterator[bytes]) -> Bounded | tuple[Artifact, Ends]:
            head = taken(parts, self.cap + 1)
            if is_text(chunks.mime) and (tool.inline or not self.heavy(tool, len(head), notes)):
                return cut(head, len(head) + sum(map(len, parts)), self.cap)
            return self._put(tool, chain([head], parts), chunks.mime, who)

        return await self._kept(lambda: stoppable(chunks, work), None, notes)

    async def after_hooks(self, tool: Tool, result: Result, who: Identity) -> Result:
        """What hooks have left of a result, kept if it is heavy."""
        if not result.success or result.size + _bytes(result.notes) < self.near:
            return result
        whole = bound(result.data, self.cap)
        kept = await self.keep(tool, result.data, whole, who, result.notes)
        partial, notes = kept.partial or result.partial, (*kept.notes, *result.notes)
        return replace(
            result, data=kept.data, size=max(kept.size, result.size), partial=partial, notes=notes
        )

    def _put(
        self, tool: Tool, parts: Iterable[bytes], mime: str, who: Identity, value: Any = None
    ) -> tuple[Artifact, Ends]:
        store, scope = self.artifacts.store, Scope.of(who)
        artifact = store.put(scope, parts, mime=mime, tool=tool.full_name)
        head = store.read(scope, artifact.reference, 0, HEAD)
        tail = store.read(scope, artifact.reference, max(0, artifact.size - TAIL), TAIL)
        mark = head[: 4 * _MARK].decode("utf-8", "ignore")[:_MARK]
        if is_text(mime) and len(mark) == _MARK:
            self._marks[mark] = artifact.reference
            if len(self._marks) > _MARKS:
                del self._marks[next(iter(self._marks))]
        return artifact, Ends(head, tail, value)

    async def _kept(
        self,
        work: Callable[[], Awaitable[Bounded | tuple[Artifact, Ends]]],
        whole: Bounded | None,
        notes: Sequence[str],
    ) -> Bounded:
        try:
            done = await work()
        except (OSError, FerruleError) as error:
            if whole is None:
                raise
            return self._unkept(whole, error, notes)
        if isinstance(done, Bounded):
            return done
        artifact, ends = done
        if self.artifacts.threshold is None:
            shown = cut(ends.head, artifact.size, self.cap) if whole is None else whole
            return replace(
                shown, notes=(*shown.notes, f"[the whole is kept as {artifact.reference}]")
            )
        room = self.least - 1 - _bytes((_READ_ON, *notes))
        shown = await run_blocking(lambda: stub(artifact, ends, room))
        return Bounded(shown, artifact.size, True, (_READ_ON,))

    def _unkept(self, whole: Bounded, error: Exception, notes: Sequence[str]) -> Bounded:
        """Cut instead: what the model may still read of a result that no store takes."""
        why = f"[it could not be kept: {str(error).splitlines()[0][:200]}]"
        if self.artifacts.threshold is None:
            return replace(whole, notes=(*whole.notes, why))
        most = max(0, self.least - 1 - _bytes((why, *notes)) - 80)
        less = bound(whole.data, most)
        return Bounded(
            less.data,
            whole.size,
            True,
            (f"[output truncated at {most} bytes of {whole.size}]", why),
        )


async def cut_chunks(chunks: Chunks, cap: int) -> Bounded:
    """A result that comes in pieces where nothing keeps it: its beginning, and how many bytes there
    were.
    """

    def work(parts: Iterator[bytes]) -> Bounded:
        head = taken(parts, cap + 1)
        size = len(head) + sum(map(len, parts))
        if is_text(chunks.mime):
            return cut(head, size, cap)
        return Bounded(f"[{size} bytes of {chunks.mime}, which is no text]", size, True, ())

    return await stoppable(chunks, work)


async def stoppable(chunks: Chunks, work: Callable[[Iterator[bytes]], T]) -> T:
    """Work on the pieces in a thread. If we are cancelled it ends with the next piece, and what it
    had begun is undone.
    """
    stopped = threading.Event()

    def watched(parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            if stopped.is_set():
                raise InterruptedError("the call was stopped")
            yield part

    def whole() -> T:
        parts = chunks.encoded()
        try:
            return work(watched(parts))
        finally:
            # A store that refused the rest has not read to the end.
            parts.close()

    try:
        return await run_blocking(whole)
    finally:
        stopped.set()


def taken(parts: Iterator[bytes], least: int) -> bytes:
    """The beginning: `least` bytes or a little more, if there are as many."""
    head = bytearray()
    while len(head) < least and (part := next(parts, None)) is not None:
        head += part
    return bytes(head)


def cut(head: bytes, size: int, cap: int) -> Bounded:
    """The beginning of a text of `size` bytes as a result of at most `cap`."""
    # A character that is split by the end of `head` lies past the cap.
    shown = bound(head[: cap + 4].decode("utf-8", "replace"), cap)
    partial = size > cap or shown.partial
    notes = (f"[output truncated at {cap} bytes of {size}]",) if partial else ()
    return Bounded(shown.data, size, partial, notes)


def _bytes(notes: Sequence[str]) -> int:
    return sum(len(note.encode("utf-8", "replace")) + 1 for note in notes)


def _pieces(text: str) -> Iterator[bytes]:
    """A text as bytes, a piece at a time: its encoded form is never held as a whole."""
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE].encode("utf-8", "replace")


def artifacts_for(
    given: Artifacts | ArtifactStore | str | Path | bool | None, limits: Limits, catalog: Catalog
) -> Artifacts:
    """Return what `Storage(artifacts=...)` means; None keeps only what exceeds the output limit.

    The tools that read artifacts are added to the catalog if the model gets stubs.
    """
    if isinstance(given, (str, Path)):
        artifacts = Artifacts(artifacts_at(given))
    elif given is None or isinstance(given, bool):
        artifacts = Artifacts(artifacts_at(None), THRESHOLD if given else None)
    else:
        artifacts = given if isinstance(given, Artifacts) else Artifacts(given)
    if artifacts.threshold is not None:
        from .tools import TOOLS

        catalog.add(*(tool for tool in TOOLS if tool.name not in catalog))
    least = min(artifacts.threshold or THRESHOLD, limits.max_output_bytes + 1)
    return replace(artifacts, room=least - min(256, least // 2))


def guarded(
    exchange: Exchange, keeper: Keeper, catalog: Catalog, notice: Callable[[str, str], None]
) -> Exchange:
    """A conversation that never carries what should have been kept (`models.leak_check`)."""
    limit = 2 * OUTPUT_CAP if keeper.artifacts.threshold is None else keeper.least
    inline = frozenset(tool.full_name for tool in catalog if tool.inline)
    return Guarded(
        exchange, limit, inline, keeper.repeated, notice, exchange.notices, keeper.settled
    )
