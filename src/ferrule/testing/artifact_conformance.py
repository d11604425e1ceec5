"""Check any `ferrule.storage.artifacts.store.ArtifactStore` against its contract.

class TestMyStore(ArtifactConformance):
    def open_store(self) -> ArtifactStore:
        return MyStore(...)          # a new, empty one each time; the suite closes it
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from ferrule.core.errors import ConfigError
from ferrule.core.extras import name_missing_extra
from ferrule.storage.artifacts.store import CHUNK_SIZE, ArtifactMissing, ArtifactStore, Scope

with name_missing_extra():
    import pytest

MINE = Scope("local", "me", "s1")
OTHERS = (
    Scope("other", "me", "s1"),
    Scope("local", "you", "s1"),
    Scope("local", "me", "s2"),
    Scope("localme", "s1", "x"),
)
NEVER = "art-" + "0" * 64
MALFORMED = (
    "",
    "art-",
    "art-" + "G" * 64,
    "0" * 64,
    "../" + NEVER,
    NEVER + "/x",
    "art-" + "0" * 63,
    "\x00",
)


class ArtifactConformance:
    """Tests of an artifact store: subclass as `Test…` and implement `open_store`."""

    def open_store(self) -> ArtifactStore:
        """Return a new, empty store with limits that this suite does not reach (some MiB)."""
        raise NotImplementedError

    @pytest.fixture
    def artifacts(self) -> Iterator[ArtifactStore]:
        store = self.open_store()
        yield store
        store.close()

    def test_any_part_of_an_artifact_can_be_read(self, artifacts: ArtifactStore) -> None:
        data = bytes(range(256)) * 5000
        kept = artifacts.put(
            MINE, [data[:7], b"", data[7:]], mime="application/x-bytes", tool="dump"
        )
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
            assert (
                artifacts.read(MINE, kept.reference, offset, size) == data[offset : offset + size]
            )
        pieces = list(artifacts.read_chunks(MINE, kept.reference, 100))
        assert b"".join(pieces) == data[100:]
        assert all(0 < len(piece) <= CHUNK_SIZE for piece in pieces)

    def test_an_empty_artifact_can_be_stored(self, artifacts: ArtifactStore) -> None:
        kept = artifacts.put(MINE, [])
        assert (kept.size, kept.lines) == (0, 0)
        assert artifacts.read(MINE, kept.reference, 0, 10) == b""
        assert list(artifacts.read_chunks(MINE, kept.reference)) == []

    def test_equal_bytes_are_one_artifact(self, artifacts: ArtifactStore) -> None:
        first = artifacts.put(MINE, [b"same"])
        second = artifacts.put(MINE, [b"sa", b"me"])
        assert first.reference == second.reference
        assert [one.sha256 for one in artifacts.list(MINE)] == [first.sha256]

    @pytest.mark.parametrize(
        "other", OTHERS, ids=lambda scope: "-".join((scope.tenant, scope.user, scope.session))
    )
    def test_other_scopes_cannot_find_read_list_or_delete_an_artifact(
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
            list(artifacts.read_chunks(other, kept.reference))
        assert artifacts.list(other) == []
        assert artifacts.delete(other, kept.reference) is False
        assert artifacts.read(MINE, kept.reference, 0, 6) == b"secret"

    @pytest.mark.parametrize("reference", [NEVER, *MALFORMED])
    def test_an_unknown_reference_is_missing(
        self, artifacts: ArtifactStore, reference: str
    ) -> None:
        artifacts.put(MINE, [b"something"])
        for ask in (
            lambda: artifacts.find(MINE, reference),
            lambda: artifacts.read(MINE, reference, 0, 1),
            lambda: list(artifacts.read_chunks(MINE, reference)),
        ):
            with pytest.raises(ArtifactMissing):
                ask()
        assert artifacts.delete(MINE, reference) is False

    def test_a_deleted_artifact_is_gone_and_can_be_stored_again(
        self, artifacts: ArtifactStore
    ) -> None:
        kept, stays = artifacts.put(MINE, [b"one"]), artifacts.put(MINE, [b"two"])
        assert artifacts.delete(MINE, kept.reference) is True
        assert artifacts.delete(MINE, kept.reference) is False
        with pytest.raises(ArtifactMissing):
            artifacts.find(MINE, kept.reference)
        assert [one.sha256 for one in artifacts.list(MINE)] == [stays.sha256]
        artifacts.put(MINE, [b"one"])
        assert artifacts.read(MINE, kept.reference, 0, 3) == b"one"

    def test_parts_that_raise_leave_nothing_behind(self, artifacts: ArtifactStore) -> None:
        def break_off() -> Iterator[bytes]:
            yield b"half of it"
            raise RuntimeError("the source is gone")

        with pytest.raises(RuntimeError, match="the source is gone"):
            artifacts.put(MINE, break_off())
        assert artifacts.list(MINE) == []
        with pytest.raises(ArtifactMissing):
            artifacts.find(MINE, "art-" + hashlib.sha256(b"half of it").hexdigest())

    @pytest.mark.parametrize("gone", [RuntimeError, KeyboardInterrupt])
    def test_parts_that_raise_after_much_data_leave_nothing_behind(
        self, artifacts: ArtifactStore, gone: type[BaseException]
    ) -> None:
        data = b"much" * CHUNK_SIZE

        def break_off() -> Iterator[bytes]:
            yield data
            raise gone("the source is gone")

        with pytest.raises(gone, match="the source is gone"):
            artifacts.put(MINE, break_off())
        assert artifacts.list(MINE) == []
        kept = artifacts.put(MINE, [data])
        assert b"".join(artifacts.read_chunks(MINE, kept.reference)) == data

    def test_deleting_the_same_bytes_in_one_scope_keeps_those_of_another(
        self, artifacts: ArtifactStore
    ) -> None:
        mine = artifacts.put(MINE, [b"same"], tool="mine")
        theirs = artifacts.put(OTHERS[0], [b"same"], tool="theirs")
        assert mine.reference == theirs.reference
        assert artifacts.find(MINE, mine.reference).tool == "mine"
        assert artifacts.delete(MINE, mine.reference) is True
        assert artifacts.read(OTHERS[0], theirs.reference, 0, 4) == b"same"
        assert artifacts.list(MINE) == []

    def test_reading_past_the_end_returns_nothing(self, artifacts: ArtifactStore) -> None:
        kept = artifacts.put(MINE, [b"x" * (CHUNK_SIZE + 1)])
        for offset in (CHUNK_SIZE + 1, CHUNK_SIZE + 2, 10 * CHUNK_SIZE, 1 << 40):
            assert artifacts.read(MINE, kept.reference, offset, 10) == b""
            assert list(artifacts.read_chunks(MINE, kept.reference, offset)) == []
        assert artifacts.read(MINE, kept.reference, CHUNK_SIZE, 1 << 40) == b"x"
        assert artifacts.read(MINE, kept.reference, 0, 0) == b""

    def test_the_list_has_the_newest_first_and_agrees_with_find(
        self, artifacts: ArtifactStore
    ) -> None:
        for number in range(5):
            artifacts.put(MINE, [b"%d\n" % number], tool=f"t{number}")
        listed = artifacts.list(MINE)
        assert [one.made for one in listed] == sorted((one.made for one in listed), reverse=True)
        assert listed == [artifacts.find(MINE, one.reference) for one in listed]
        assert {one.tool for one in listed} == {"t0", "t1", "t2", "t3", "t4"}

    @pytest.mark.parametrize(
        "odd", ["", "nul\0", "half \ud83d", "two\nlines", "ä" * 5000, "a'b\"c;--"]
    )
    def test_odd_metadata_does_not_hide_an_artifact(
        self, artifacts: ArtifactStore, odd: str
    ) -> None:
        kept = artifacts.put(MINE, [b"data"], mime=odd, tool=odd)
        found = artifacts.find(MINE, kept.reference)
        assert (found.sha256, found.size) == (kept.sha256, 4)
        assert artifacts.list(MINE) == [found]

    def test_threads_can_store_read_list_and_delete_at_once(self, artifacts: ArtifactStore) -> None:
        scopes = (MINE, *OTHERS)

        def work(number: int) -> list[bytes]:
            scope, read = scopes[number % len(scopes)], list[bytes]()
            for turn in range(4):
                shared, own = b"%d" % (turn % 3) * 1000, b"%d of %d" % (turn, number)
                for data in (shared, own):
                    kept = artifacts.put(scope, [data[:3], data[3:]])
                    read.append(artifacts.read(scope, kept.reference, 0, 5000))
                assert {one.sha256 for one in artifacts.list(scope)} >= {kept.sha256}
                assert artifacts.delete(scope, kept.reference) is True
            return read

        with ThreadPoolExecutor(8) as pool:
            for number, read in enumerate(pool.map(work, range(12))):
                shared = [b"%d" % (turn % 3) * 1000 for turn in range(4)]
                assert read[::2] == shared
                assert read[1::2] == [b"%d of %d" % (turn, number) for turn in range(4)]
        for scope in scopes:
            assert sorted(one.size for one in artifacts.list(scope)) == [1000] * 3

    def test_a_sweep_within_the_limits_removes_nothing(self, artifacts: ArtifactStore) -> None:
        kept = artifacts.put(MINE, [b"fresh"])
        assert artifacts.sweep() == 0
        assert artifacts.find(MINE, kept.reference) == kept

    @pytest.mark.parametrize("blank", [("", "u", "s"), ("t", " ", "s"), ("t", "u", "\n")])
    def test_a_scope_needs_an_owner(self, blank: tuple[str, str, str]) -> None:
        with pytest.raises(ConfigError):
            Scope(*blank)

    def test_closing_twice_is_harmless(self) -> None:
        store = self.open_store()
        store.close()
        store.close()
