"""The contract of `ferrule.store.artifacts.ArtifactStore` as tests. Any store of large outputs can run them.

class TestMyStore(ArtifactConformance):
    def open_store(self) -> ArtifactStore:
        return MyStore(...)          # a new, empty one each time; the suite closes it
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ferrule.core.errors import ConfigError
from ferrule.store.artifacts import PIECE, ArtifactMissing, ArtifactStore, Scope

MINE = Scope("local", "me", "s1")
OTHERS = (
    Scope("other", "me", "s1"),
    Scope("local", "you", "s1"),
    Scope("local", "me", "s2"),
    Scope("localme", "s1", "x"),
)
NEVER = "art-" + "0" * 64
MALFORMED = ("", "art-", "art-" + "G" * 64, "0" * 64, "../" + NEVER, NEVER + "/x", "art-" + "0" * 63, "\x00")


class ArtifactConformance:
    """Subclass it, name the class `Test…`, and give `open_store`."""

    def open_store(self) -> ArtifactStore:
        """A new, empty store with bounds that this suite does not reach (some MiB)."""
        raise NotImplementedError

    @pytest.fixture
    def artifacts(self) -> Iterator[ArtifactStore]:
        store = self.open_store()
        yield store
        store.close()

    def test_what_went_in_comes_back_in_any_part(self, artifacts: ArtifactStore) -> None:
        data = bytes(range(256)) * 5000
        kept = artifacts.put(MINE, [data[:7], b"", data[7:]], mime="application/x-bytes", tool="dump")
        assert (kept.size, kept.mime, kept.tool) == (len(data), "application/x-bytes", "dump")
        assert (kept.sha256, kept.lines) == (hashlib.sha256(data).hexdigest(), data.count(b"\n"))
        assert artifacts.find(MINE, kept.reference) == kept
        for offset, size in (
            (0, 10),
            (255, 2),
            (len(data) - 3, 10),
            (len(data), 1),
            (len(data) + 9, 5),
            (0, len(data)),
        ):
            assert artifacts.read(MINE, kept.reference, offset, size) == data[offset : offset + size]
        pieces = list(artifacts.pieces(MINE, kept.reference, 100))
        assert b"".join(pieces) == data[100:]
        assert all(0 < len(piece) <= PIECE for piece in pieces)

    def test_nothing_is_an_artifact_too(self, artifacts: ArtifactStore) -> None:
        kept = artifacts.put(MINE, [])
        assert (kept.size, kept.lines) == (0, 0)
        assert artifacts.read(MINE, kept.reference, 0, 10) == b""
        assert list(artifacts.pieces(MINE, kept.reference)) == []

    def test_equal_bytes_are_one_artifact(self, artifacts: ArtifactStore) -> None:
        first = artifacts.put(MINE, [b"same"])
        second = artifacts.put(MINE, [b"sa", b"me"])
        assert first.reference == second.reference
        assert [one.sha256 for one in artifacts.list(MINE)] == [first.sha256]

    @pytest.mark.parametrize(
        "other", OTHERS, ids=lambda scope: "-".join((scope.tenant, scope.user, scope.session))
    )
    def test_nobody_else_finds_reads_lists_or_deletes_it(
        self, artifacts: ArtifactStore, other: Scope
    ) -> None:
        kept = artifacts.put(MINE, [b"secret"])
        with pytest.raises(ArtifactMissing) as theirs:
            artifacts.find(other, kept.reference)
        with pytest.raises(ArtifactMissing) as nobodys:
            artifacts.find(other, NEVER)
        assert str(theirs.value) == str(nobodys.value).replace(NEVER, kept.reference)
        with pytest.raises(ArtifactMissing):
            artifacts.read(other, kept.reference, 0, 6)
        with pytest.raises(ArtifactMissing):
            list(artifacts.pieces(other, kept.reference))
        assert artifacts.list(other) == []
        assert artifacts.delete(other, kept.reference) is False
        assert artifacts.read(MINE, kept.reference, 0, 6) == b"secret"

    @pytest.mark.parametrize("reference", [NEVER, *MALFORMED])
    def test_a_reference_that_leads_nowhere_is_missing(
        self, artifacts: ArtifactStore, reference: str
    ) -> None:
        artifacts.put(MINE, [b"something"])
        for ask in (
            lambda: artifacts.find(MINE, reference),
            lambda: artifacts.read(MINE, reference, 0, 1),
            lambda: list(artifacts.pieces(MINE, reference)),
        ):
            with pytest.raises(ArtifactMissing):
                ask()
        assert artifacts.delete(MINE, reference) is False

    def test_what_was_deleted_is_gone_and_can_be_kept_again(self, artifacts: ArtifactStore) -> None:
        kept, stays = artifacts.put(MINE, [b"one"]), artifacts.put(MINE, [b"two"])
        assert artifacts.delete(MINE, kept.reference) is True
        assert artifacts.delete(MINE, kept.reference) is False
        with pytest.raises(ArtifactMissing):
            artifacts.find(MINE, kept.reference)
        assert [one.sha256 for one in artifacts.list(MINE)] == [stays.sha256]
        artifacts.put(MINE, [b"one"])
        assert artifacts.read(MINE, kept.reference, 0, 3) == b"one"

    def test_parts_that_break_leave_nothing_behind(self, artifacts: ArtifactStore) -> None:
        def broken() -> Iterator[bytes]:
            yield b"half of it"
            raise RuntimeError("the source is gone")

        with pytest.raises(RuntimeError, match="the source is gone"):
            artifacts.put(MINE, broken())
        assert artifacts.list(MINE) == []
        with pytest.raises(ArtifactMissing):
            artifacts.find(MINE, "art-" + hashlib.sha256(b"half of it").hexdigest())

    def test_many_threads_keep_and_read_at_once(self, artifacts: ArtifactStore) -> None:
        def work(number: int) -> bytes:
            data = b"%d" % (number % 5) * 1000
            kept = artifacts.put(MINE, [data])
            return artifacts.read(MINE, kept.reference, 0, 5000)

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, range(40))) == [b"%d" % (n % 5) * 1000 for n in range(40)]
        assert len(artifacts.list(MINE)) == 5

    def test_a_sweep_within_the_bounds_removes_nothing(self, artifacts: ArtifactStore) -> None:
        kept = artifacts.put(MINE, [b"fresh"])
        assert artifacts.sweep() == 0
        assert artifacts.find(MINE, kept.reference) == kept

    @pytest.mark.parametrize("blank", [("", "u", "s"), ("t", " ", "s"), ("t", "u", "\n")])
    def test_there_is_no_scope_without_an_owner(self, blank: tuple[str, str, str]) -> None:
        with pytest.raises(ConfigError):
            Scope(*blank)

    def test_closing_twice_is_harmless(self) -> None:
        store = self.open_store()
        store.close()
        store.close()
