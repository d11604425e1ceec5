"""Artifacts in memory: for sessions whose journal is in memory, too."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from ferrule.tools.forking import make_lock

from .intake import Intake
from .store import CHUNK_SIZE, Artifact, ArtifactMissing, Scope, parse_reference


class MemoryArtifactStore:
    """Fulfils `ArtifactStore` for as long as the process lives.

    Args:
        max_bytes: The most that all artifacts together may have; one more makes the oldest go.
    """

    def __init__(self, *, max_bytes: int | None = 1 << 30) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[tuple[str, str], tuple[Artifact, bytes]] = {}
        self._lock = make_lock()

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """Store the joined `parts`; see `ArtifactStore.put`."""
        intake = Intake(self._max_bytes)
        data = b"".join(intake.blocks(parts, CHUNK_SIZE))
        artifact = intake.to_artifact(mime, tool, time.time())
        with self._lock:
            known = self._kept.get((scope.key, artifact.sha256))
            if known is not None:
                return known[0]
            self._kept[scope.key, artifact.sha256] = (artifact, data)
            self._shrink()
        return artifact

    def find(self, scope: Scope, reference: str) -> Artifact:
        """Return what is known about an artifact. Raises ArtifactMissing."""
        return self._find(scope, reference)[0]

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on. Raises ArtifactMissing."""
        return self._find(scope, reference)[1][offset : offset + size]

    def read_chunks(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """Yield all bytes from `offset` on. Raises ArtifactMissing."""
        data = self._find(scope, reference)[1]
        return (data[at : at + CHUNK_SIZE] for at in range(offset, len(data), CHUNK_SIZE))

    def list(self, scope: Scope) -> list[Artifact]:
        """Return the artifacts of a scope, newest first."""
        with self._lock:
            kept = [one for (key, _), (one, _) in self._kept.items() if key == scope.key]
        return kept[::-1]

    def delete(self, scope: Scope, reference: str) -> bool:
        """Remove an artifact. Return False if there was none."""
        try:
            digest = parse_reference(reference)
        except ArtifactMissing:
            return False
        with self._lock:
            return self._kept.pop((scope.key, digest), None) is not None

    def sweep(self) -> int:
        """Remove the oldest until the rest is within the bound; return how many were removed."""
        with self._lock:
            return self._shrink()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _find(self, scope: Scope, reference: str) -> tuple[Artifact, bytes]:
        with self._lock:
            kept = self._kept.get((scope.key, parse_reference(reference)))
        if kept is None:
            raise ArtifactMissing(reference)
        return kept

    def _shrink(self) -> int:
        total = sum(artifact.size for artifact, _ in self._kept.values())
        removed = 0
        while self._max_bytes is not None and total > self._max_bytes:
            oldest = next(iter(self._kept))
            total -= self._kept.pop(oldest)[0].size
            removed += 1
        return removed
