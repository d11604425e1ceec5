"""What artifact stores share: counting and hashing new bytes, when to sweep, and their error."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from ferrule.core.errors import FerruleError
from ferrule.tools.forking import make_lock

from .store import Artifact, ArtifactTooLarge

_MAX_NAME = 200
"""Characters of a media type or a tool's name that are kept."""


class ArtifactsUnavailable(FerruleError):
    """The store cannot be reached, or refused. It says nothing about a single artifact."""

    code = "artifacts_unavailable"


class Intake:
    """Counts and hashes the bytes of a new artifact. `most` is their limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._hash = hashlib.sha256()
        self.size = 0
        self.lines = 0

    def blocks(self, parts: Iterable[bytes], size: int) -> Iterator[bytes]:
        """Yield the same bytes in blocks of `size`, the last one shorter.

        Raises ArtifactTooLarge as soon as the limit is exceeded.
        """
        block = bytearray()
        for part in parts:
            self.add(part)
            view = memoryview(part)
            start = 0
            while len(block) + len(view) - start >= size:
                end = start + size - len(block)
                block += view[start:end]
                yield bytes(block)
                block.clear()
                start = end
            block += view[start:]
        if block:
            yield bytes(block)

    def add(self, part: bytes) -> None:
        """Count and hash bytes. Raises ArtifactTooLarge."""
        self.size += len(part)
        if self._most is not None and self.size > self._most:
            raise ArtifactTooLarge(
                f"an output is larger than the {self._most} bytes that all artifacts together may "
                "have",
                hint="raise `artifacts.max_bytes`",
            )
        self._hash.update(part)
        self.lines += part.count(b"\n")

    @property
    def sha256(self) -> str:
        """The hash of the bytes so far, in hex."""
        return self._hash.hexdigest()

    def to_artifact(self, mime: str, tool: str, now: float) -> Artifact:
        """Return what is known about the artifact, once all bytes were added."""
        made = int(now * 1000)
        return Artifact(
            self.sha256, self.size, _storable_text(mime), self.lines, made, _storable_text(tool)
        )


class SweepSchedule:
    """Says when a sweep is due.

    It is due with the first artifact of a process, and whenever a sixteenth of the limit was added.
    """

    def __init__(self, most: int | None) -> None:
        self._bound = most or 1 << 30
        self._added = self._bound
        self._lock = make_lock()

    def is_due(self, size: int) -> bool:
        """Count added bytes; return whether a sweep is due, and then start counting again."""
        with self._lock:
            self._added += size
            if self._added < self._bound // 16:
                return False
            self._added = 0
        return True


def _storable_text(text: str) -> str:
    """Return a text that every store can hold: no NUL, no lone surrogates, not too long."""
    return text[:_MAX_NAME].replace("\0", "").encode("utf-8", "replace").decode()
