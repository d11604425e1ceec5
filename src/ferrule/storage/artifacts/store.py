"""Artifacts: large outputs kept aside, addressed by their hash, readable in parts by those who own
them.

Here is what a store promises and the words it is spoken of with; `files` keeps them as files,
`parts` takes parts out of what any store holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.frozen import frozen
from ferrule.core.identity import Identity
from ferrule.core.lazy_patterns import expression
from ferrule.core.limits import OUTPUT_CAP

THRESHOLD = 32_768
"""Bytes from which on a result is kept aside, where settings say nothing else."""
LEAST_THRESHOLD = 1024
PIECE = 262_144
"""Bytes that a store holds in memory of one artifact at a time."""

_REFERENCE = expression(r"art-([0-9a-f]{64})")


class ArtifactMissing(FerruleError):
    """No artifact has this reference, or this identity may not see it, or it is too old: the three
    are not told apart.
    """

    code = "artifact_missing"

    def __init__(self, reference: str) -> None:
        super().__init__(f"there is no artifact `{reference[:80]}`", code=type(self).code)


class ArtifactTooLarge(FerruleError):
    """What was to be kept is more than the store may hold; nothing of it was kept."""

    code = "artifact_too_large"


@frozen
class Scope:
    """Whose artifacts: of one tenant, one user, one session. Never blank."""

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
    def of(identity: Identity) -> Scope:
        """The scope that this identity's run may read and write."""
        return Scope(identity.tenant, identity.user, identity.session)

    @property
    def key(self) -> str:
        """A name for it that fits everywhere (40 hex digits) and says nothing of who they are."""
        parts = [self.tenant, self.user, self.session]
        return hashlib.sha256(compact(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


@frozen
class Artifact:
    """What is known of one: `sha256` of its bytes (hex), their number, the line ends in them,
    `made` in ms since 1970.
    """

    sha256: str
    size: int
    mime: str = "text/plain"
    lines: int = 0
    made: int = 0
    tool: str = ""

    @property
    def reference(self) -> str:
        """What a model names it by: `art-` and the hash."""
        return f"art-{self.sha256}"


def hash_of(reference: str) -> str:
    """The hash in a reference. Raises ArtifactMissing for what is none."""
    found = _REFERENCE.fullmatch(reference.strip())
    if found is None:
        raise ArtifactMissing(reference)
    return found[1]


class ArtifactStore(Protocol):
    """Keeps artifacts. Checked by `ferrule.testing.artifact_conformance`.

    Contract: `put` reads `parts` once, holds a bounded piece of them in memory, and is durable
    before it returns; if it raises, or the process dies, nothing of it can be seen. Equal bytes of
    one scope are one artifact. An artifact is seen in its own scope only: any other, an unknown or
    a malformed reference is ArtifactMissing, never empty bytes. Methods block and may be called
    from any thread, several at a time.
    """

    def put(
        self, scope: Scope, parts: Iterable[bytes], *, mime: str = "text/plain", tool: str = ""
    ) -> Artifact:
        """Keep what `parts` joined are. Raises ArtifactTooLarge, OSError, and whatever `parts`
        raise.
        """
        ...

    def find(self, scope: Scope, reference: str) -> Artifact:
        """What is known of it. Raises ArtifactMissing."""
        ...

    def read(self, scope: Scope, reference: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on; none past the end. Raises ArtifactMissing."""
        ...

    def pieces(self, scope: Scope, reference: str, offset: int = 0) -> Iterator[bytes]:
        """All bytes from `offset` on, at most `PIECE` at a time. Raises ArtifactMissing, at once or
        with the first.
        """
        ...

    def list(self, scope: Scope) -> list[Artifact]:
        """The artifacts of a scope, newest first."""
        ...

    def delete(self, scope: Scope, reference: str) -> bool:
        """Remove one; False if there was none."""
        ...

    def sweep(self) -> int:
        """Remove what is too old, then the oldest until the rest is within the bound. Returns how
        many went.
        """
        ...

    def close(self) -> None:
        """Give back what is open. Safe to call twice."""
        ...


@frozen
class Artifacts:
    """A run's store and its bounds, for the engine and as the resource that reading tools ask for.

    A result of `threshold` bytes or more is kept, and the model gets a stub; with `threshold` None
    only what exceeds the output limit is kept, beside the cut result. `room` bounds what a reading
    tool answers, in bytes.
    """

    store: ArtifactStore
    threshold: int | None = THRESHOLD
    room: int = THRESHOLD - 512

    def __post_init__(self) -> None:
        if self.threshold is not None and not LEAST_THRESHOLD <= self.threshold <= OUTPUT_CAP:
            raise ConfigError(
                f"artifacts.threshold = {self.threshold}: must lie between {LEAST_THRESHOLD} "
                f"and {OUTPUT_CAP}"
            )
