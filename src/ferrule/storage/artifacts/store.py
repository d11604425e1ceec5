"""Artifacts: large outputs stored outside the journal, readable in parts by their owners.

They are addressed by their hash. This is the contract of a store and its data types; `files` stores
artifacts as files, `parts` reads parts of them from any store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.identity import Identity
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.value_class import frozen

THRESHOLD = 32_768
"""Results of so many bytes or more become artifacts, unless the settings say otherwise."""
MIN_THRESHOLD = 1024
CHUNK_SIZE = 262_144
"""Bytes of one artifact that a store holds in memory at a time."""

_REFERENCE = compile_lazily(r"art-([0-9a-f]{64})")


class ArtifactMissing(FerruleError):
    """No artifact has this reference, or it expired, or this identity may not see it.

    The three cases are not told apart.
    """

    code = "artifact_missing"

    def __init__(self, reference: str) -> None:
        super().__init__(f"there is no artifact `{reference[:80]}`", code=type(self).code)


class ArtifactTooLarge(FerruleError):
    """An output is larger than the store may be; nothing of it was kept."""

    code = "artifact_too_large"


@frozen
class Scope:
    """The owner of artifacts: one tenant, one user, one session. Never blank."""

    tenant: str
    user: str
    session: str

    def __post_init__(self) -> None:
        if not (self.tenant.strip() and self.user.strip() and self.session.strip()):
            raise ConfigError(
                "the owner of an artifact needs a tenant, a user and a session",
                code="identity_blank",
            )

    @staticmethod
    def from_identity(identity: Identity) -> Scope:
        """Return the scope that this identity's run may read and write."""
        return Scope(identity.tenant, identity.user, identity.session)

    @property
    def key(self) -> str:
        """A name that is valid everywhere (40 hex digits) and reveals nothing about the owner."""
        parts = [self.tenant, self.user, self.session]
        return hashlib.sha256(encode_json(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


@frozen
class Artifact:
    """What is known about an artifact.

    `sha256` is the hash of its bytes (hex), `size` their number, `lines` the number of line ends,
    `made` the time in ms since 1970.
    """

    sha256: str
    size: int
    mime: str = "text/plain"
    lines: int = 0
    made: int = 0
    tool: str = ""

    @property
    def reference(self) -> str:
        """The name that models use for it: `art-` and the hash."""
        return f"art-{self.sha256}"


def parse_reference(reference: str) -> str:
    """Return the hash in a reference. Raises ArtifactMissing if it is not a reference."""
    found = _REFERENCE.fullmatch(reference.strip())
    if found is None:
        raise ArtifactMissing(reference)
    return found[1]


class ArtifactStore(Protocol):
    """Stores artifacts.

    Contract (checked by `ferrule.testing.artifact_conformance`):

    * `put` reads `parts` once, holds a bounded piece of them in memory, and is durable before it
      returns. If it raises, or the process dies, nothing of the artifact can be seen.
    * Equal bytes in one scope are one artifact.
    * An artifact can be seen in its own scope only. For another scope, an unknown or a malformed
      reference, methods raise ArtifactMissing; they never return empty bytes.
    * Methods block and may be called from any thread, several at a time.
    """

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """Store the joined `parts`.

        Raises:
            ArtifactTooLarge: They are more than the store may hold.
            OSError: They could not be written. What `parts` raise is raised, too.
        """
        ...

    def find(self, scope: Scope, reference: str) -> Artifact:
        """Return what is known about an artifact. Raises ArtifactMissing."""
        ...

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on, none past the end. Raises ArtifactMissing."""
        ...

    def read_chunks(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """Yield all bytes from `offset` on, at most `PIECE` at a time.

        Raises ArtifactMissing, at once or with the first piece.
        """
        ...

    def list(self, scope: Scope) -> list[Artifact]:
        """Return the artifacts of a scope, newest first."""
        ...

    def delete(self, scope: Scope, reference: str) -> bool:
        """Remove an artifact. Return False if there was none."""
        ...

    def sweep(self) -> int:
        """Remove expired artifacts, then the oldest until the rest is within the bound.

        Returns how many were removed.
        """
        ...

    def close(self) -> None:
        """Release connections and files. Safe to call twice."""
        ...


@frozen
class RunArtifacts:
    """A run's store and its limits, for the engine and for the tools that read artifacts.

    A result of `threshold` bytes or more becomes an artifact, and the model gets a stub. If
    `threshold` is None, only results over the output limit do, beside the cut result. `read_limit`
    is the limit of a reading tool's answer, in bytes.
    """

    store: ArtifactStore
    threshold: int | None = THRESHOLD
    read_limit: int = THRESHOLD - 512

    def __post_init__(self) -> None:
        if self.threshold is not None and not MIN_THRESHOLD <= self.threshold <= OUTPUT_CAP:
            raise ConfigError(
                f"artifacts.threshold = {self.threshold}: must be between {MIN_THRESHOLD} "
                f"and {OUTPUT_CAP}"
            )
