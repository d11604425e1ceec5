"""Artifacts as files: the shared contract, and what only a disk can show."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact_retention import ArtifactRetention, Days
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import (
    Artifact,
    ArtifactMissing,
    ArtifactStore,
    ArtifactTooLarge,
    Scope,
)
from ferrule.testing.artifact_conformance import MINE, ArtifactConformance

DAY = 86_400.0


class TestFiles(ArtifactConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def open_store(self) -> ArtifactStore:
        return FileArtifactStore(tempfile.mkdtemp(dir=self.root))


class TestRetention(ArtifactRetention):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.root = tmp_path / "artifacts"

    def open_limited(
        self, clock: Days, *, days: int | None = None, max_bytes: int | None = None
    ) -> ArtifactStore:
        return FileArtifactStore(self.root, days=days, max_bytes=max_bytes, now=clock)

    def is_empty(self) -> bool:
        return list(self.root.iterdir()) == []


@pytest.fixture
def store(tmp_path: Path) -> FileArtifactStore:
    return FileArtifactStore(tmp_path / "artifacts")


def folder_of(store: FileArtifactStore, scope: Scope = MINE) -> Path:
    return store.root / scope.key


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.binary(max_size=3000), max_size=6),
    st.integers(0, 20_000),
    st.integers(0, 20_000),
)
def test_any_range_of_any_bytes_comes_back(parts: list[bytes], offset: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, whole = FileArtifactStore(folder), b"".join(parts)
        kept = store.put(MINE, parts)
        assert store.read(MINE, kept.reference, offset, size) == whole[offset : offset + size]
        assert b"".join(store.read_chunks(MINE, kept.reference, offset)) == whole[offset:]
        assert (kept.size, kept.lines) == (len(whole), whole.count(b"\n"))


def test_folders_and_files_are_for_their_owner_alone(store: FileArtifactStore) -> None:
    before = os.umask(0)
    try:
        store.put(MINE, [b"secret"])
    finally:
        os.umask(before)
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in (store.root, *store.root.rglob("*"))
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    names = "".join(str(path.relative_to(store.root)) for path in modes)
    assert "local" not in names and "s1" not in names


def test_the_person_s_own_store_lies_in_their_state_folder(own_folders: Path) -> None:
    kept = FileArtifactStore().put(MINE, [b"x"])
    assert (own_folders / "state" / "artifacts" / MINE.key / kept.sha256).read_bytes() == b"x"


def linked_bytes(folder: Path, kept: Artifact, outside: Path) -> None:
    (folder / kept.sha256).unlink()
    (folder / kept.sha256).symlink_to(outside)


def linked_description(folder: Path, kept: Artifact, outside: Path) -> None:
    described = folder / f"{kept.sha256}.json"
    outside.write_bytes(described.read_bytes())
    described.unlink()
    described.symlink_to(outside)


def second_name(folder: Path, kept: Artifact, outside: Path) -> None:
    (folder / kept.sha256).unlink()
    os.link(outside, folder / kept.sha256)


def linked_folder(folder: Path, kept: Artifact, outside: Path) -> None:
    moved = folder.rename(outside.parent / "moved")
    folder.symlink_to(moved, target_is_directory=True)


def named_pipe(folder: Path, kept: Artifact, outside: Path) -> None:
    (folder / kept.sha256).unlink()
    os.mkfifo(folder / kept.sha256)


def subfolder(folder: Path, kept: Artifact, outside: Path) -> None:
    (folder / kept.sha256).unlink()
    (folder / kept.sha256).mkdir()


def other_size(folder: Path, kept: Artifact, outside: Path) -> None:
    with (folder / kept.sha256).open("ab") as file:
        file.write(b"more")


def broken_description(folder: Path, kept: Artifact, outside: Path) -> None:
    (folder / f"{kept.sha256}.json").write_bytes(b'{"size": "many"')


TRICKS = (
    linked_bytes,
    linked_description,
    second_name,
    linked_folder,
    named_pipe,
    subfolder,
    other_size,
    broken_description,
)


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.__name__)
def test_what_is_not_the_file_that_was_kept_does_not_exist(
    store: FileArtifactStore, tmp_path: Path, trick: object
) -> None:
    kept = store.put(MINE, [b"password"])
    outside = tmp_path / "outside"
    outside.write_bytes(b"passw0rd")
    trick(folder_of(store), kept, outside)  # type: ignore[operator]
    with pytest.raises(ArtifactMissing):
        store.read(MINE, kept.reference, 0, 100)
    with pytest.raises(ArtifactMissing):
        store.find(MINE, kept.reference)
    assert store.list(MINE) == []


def test_nothing_is_written_through_a_link_in_place_of_the_folder(
    store: FileArtifactStore, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    store.root.mkdir()
    folder_of(store).symlink_to(target, target_is_directory=True)
    with pytest.raises(OSError):
        store.put(MINE, [b"x"])
    assert list(target.iterdir()) == []


def test_keeping_replaces_a_link_and_does_not_follow_it(
    store: FileArtifactStore, tmp_path: Path
) -> None:
    kept = store.put(MINE, [b"mine"])
    outside = tmp_path / "outside"
    outside.write_bytes(b"untouched")
    linked_bytes(folder_of(store), kept, outside)
    store.put(MINE, [b"mine"])
    assert outside.read_bytes() == b"untouched"
    assert store.read(MINE, kept.reference, 0, 9) == b"mine"


DIES = """
import os, signal, sys
from ferrule.storage.artifacts import files as artifact_files
from ferrule.testing.artifact_conformance import MINE
replaced = 0
def dying(*given, **more):
    global replaced
    if replaced == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    replaced += 1
    return real(*given, **more)
real, artifact_files.os.replace = os.replace, dying
artifact_files.FileArtifactStore(sys.argv[1]).put(MINE, [b"never ", b"whole"])
"""


@pytest.mark.parametrize(
    "renames", [0, 1], ids=["before-the-bytes-have-their-name", "before-the-description-has"]
)
def test_a_process_that_dies_while_it_keeps_leaves_nothing_to_be_seen(
    tmp_path: Path, renames: int
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path / "a"), str(renames)], check=False, timeout=60
    )
    assert ran.returncode == -signal.SIGKILL
    clock = Days()
    store = FileArtifactStore(tmp_path / "a", now=clock)
    left = sorted(folder_of(store).iterdir())
    assert len(left) == 1 + renames
    assert store.list(MINE) == []
    # What is left of the other one goes when it is a day old; until then it might be somebody's who
    # still writes.
    drafts = [path for path in left if path.name.startswith(".")]
    for path in drafts:
        os.utime(path, (clock.seconds - DAY / 2, clock.seconds - DAY / 2))
    kept = store.put(MINE, [b"never whole"])
    assert store.read(MINE, kept.reference, 0, 100) == b"never whole"
    store.sweep()
    assert all(path.exists() for path in drafts)
    clock.seconds += DAY
    store.sweep()
    assert not any(path.exists() for path in drafts)
    assert [one.sha256 for one in store.list(MINE)] == [kept.sha256]


@pytest.mark.parametrize("most", [16_000, None])
def test_the_first_artifact_that_a_process_keeps_sends_what_is_too_old_away(
    tmp_path: Path, most: int | None
) -> None:
    clock = Days()
    FileArtifactStore(tmp_path / "a", max_bytes=most, days=10, now=clock).put(MINE, [b"old"])
    clock.seconds += 11 * DAY
    later = FileArtifactStore(tmp_path / "a", max_bytes=most, days=10, now=clock)
    new = later.put(MINE, [b"new"])
    assert later.list(MINE) == [new]


def test_keeping_little_goes_through_all_folders_only_after_a_sixteenth_of_the_bound(
    tmp_path: Path,
) -> None:
    clock = Days()
    store = FileArtifactStore(tmp_path / "a", max_bytes=16_000, days=10, now=clock)
    old = store.put(MINE, [b"old"])
    clock.seconds += 11 * DAY
    store.put(MINE, [b"0" * 400])
    store.put(MINE, [b"1" * 400])
    assert old in store.list(MINE)
    store.put(MINE, [b"2" * 400])
    assert [one.size for one in store.list(MINE)] == [400, 400, 400]


def test_what_is_more_than_all_may_be_together_is_not_kept_and_not_read_to_its_end(
    tmp_path: Path,
) -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 1000

    store = FileArtifactStore(tmp_path / "a", max_bytes=10_000)
    with pytest.raises(ArtifactTooLarge, match="10000 bytes"):
        store.put(MINE, endless())
    assert read == 11
    assert list(folder_of(store).iterdir()) == []


def test_a_sweep_leaves_alone_what_is_not_its_own(tmp_path: Path) -> None:
    clock = Days()
    store = FileArtifactStore(tmp_path / "a", days=1, now=clock)
    store.put(MINE, [b"x"])
    (store.root / "notes").mkdir()
    (store.root / "notes" / "mine.txt").write_text("keep")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ("0" * 64)).write_text("keep")
    (store.root / ("0" * 40)).symlink_to(elsewhere, target_is_directory=True)
    clock.seconds += 100 * DAY
    assert store.sweep() == 1
    assert (store.root / "notes" / "mine.txt").read_text() == "keep"
    assert (elsewhere / ("0" * 64)).read_text() == "keep"
