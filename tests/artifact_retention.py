"""What every artifact store forgets: what is too old, and the oldest where there is too much."""

from __future__ import annotations

import time

import pytest

from ferrule.storage.artifacts.store import (
    ArtifactMissing,
    ArtifactStore,
    ArtifactTooLarge,
    Scope,
)
from ferrule.testing.artifact_conformance import MINE

DAY_SECONDS = 86_400.0


class Days:
    """A wall clock that a test moves. It starts with the real one: object stores have clocks of
    their own.
    """

    def __init__(self) -> None:
        self.seconds = time.time()

    def __call__(self) -> float:
        return self.seconds


class ArtifactRetention:
    """Tests of a store's limits: subclass as `Test…`."""

    def open_limited(
        self, clock: Days, *, days: int | None = None, max_bytes: int | None = None
    ) -> ArtifactStore:
        """Return a new, empty store with these limits."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Whether nothing is left where the store keeps its bytes."""
        raise NotImplementedError

    def test_what_is_too_old_goes_and_keeping_it_again_makes_it_young(self) -> None:
        clock = Days()
        store = self.open_limited(clock, days=10)
        old = store.put(MINE, [b"old"])
        used = store.put(MINE, [b"used"])
        clock.seconds += 6 * DAY_SECONDS
        store.put(MINE, [b"used"])
        clock.seconds += 5 * DAY_SECONDS
        assert store.sweep() == 1
        assert [one.sha256 for one in store.list(MINE)] == [used.sha256]
        with pytest.raises(ArtifactMissing):
            store.find(MINE, old.reference)
        clock.seconds += 30 * DAY_SECONDS
        assert store.sweep() == 1
        assert self.is_empty()
        store.close()

    def test_the_oldest_of_all_scopes_go_when_there_is_too_much_but_never_the_newest(self) -> None:
        clock = Days()
        store = self.open_limited(clock, max_bytes=10_000)
        scopes = [Scope("t", "u", f"s{n}") for n in range(5)]
        for n, scope in enumerate(scopes):
            clock.seconds += 60
            store.put(scope, [b"%d" % n * 4000])
        assert [bool(store.list(scope)) for scope in scopes] == [False, False, False, True, True]
        clock.seconds += 60
        last = store.put(MINE, [b"x" * 10_000])
        assert [one.sha256 for one in store.list(MINE)] == [last.sha256]
        assert not any(store.list(scope) for scope in scopes)
        with pytest.raises(ArtifactTooLarge, match="10000 bytes"):
            store.put(MINE, [b"x" * 10_001])
        store.close()
