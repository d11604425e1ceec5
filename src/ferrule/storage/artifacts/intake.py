"""What stores of artifacts share: when a sweep is due; and those that are not files: taking bytes
in, and their error.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator

from ferrule.core.errors import FerruleError

from .store import Artifact, ArtifactTooLarge

_WORDS = 200
"""Characters of a type or a tool's name that are kept."""


class ArtifactsUnavailable(FerruleError):
    """The place where artifacts are kept cannot be reached, or refused. Unlike ArtifactMissing it
    says nothing about one.
    """

    code = "artifacts_unavailable"


class Intake:
    """Counts and hashes what is being kept. `most` bounds its bytes."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._hash = hashlib.sha256()
        self.size = self.lines = 0

    def blocks(self, parts: Iterable[bytes], size: int) -> Iterator[bytes]:
        """The same bytes in blocks of `size`, the last one shorter. Raises ArtifactTooLarge as soon
        as it is too much.
        """
        block = bytearray()
        for part in parts:
            self._take(part)
            view, start = memoryview(part), 0
            while len(block) + len(view) - start >= size:
                end = start + size - len(block)
                block += view[start:end]
                yield bytes(block)
                block.clear()
                start = end
            block += view[start:]
        if block:
            yield bytes(block)

    def _take(self, part: bytes) -> None:
        self.size += len(part)
        if self._most is not None and self.size > self._most:
            raise ArtifactTooLarge(
                (
                    f"an output of more than {self._most} bytes is more than all artifacts "
                    "together may be"
                ),
                hint="raise `artifacts.max_bytes`",
            )
        self._hash.update(part)
        self.lines += part.count(b"\n")

    def artifact(self, mime: str, tool: str, now: float) -> Artifact:
        """What is known of it once all blocks were taken."""
        made = int(now * 1000)
        return Artifact(
            self._hash.hexdigest(), self.size, _text(mime), self.lines, made, _text(tool)
        )


class Unswept:
    """Says when a sweep is due: with the first artifact of a process, and whenever a sixteenth of
    the bound was added.
    """

    def __init__(self, most: int | None) -> None:
        self._bound = most or 1 << 30
        self._added = self._bound
        self._lock = threading.Lock()

    def due(self, size: int) -> bool:
        """Whether one is due now that so many bytes were added; then counting starts anew."""
        with self._lock:
            self._added += size
            due = self._added >= self._bound // 16
            self._added = 0 if due else self._added
        return due


def _text(words: str) -> str:
    """As every store can hold it: no NUL, no lone surrogates, not endless."""
    return words[:_WORDS].replace("\0", "").encode("utf-8", "replace").decode()
