"""Artifacts in object stores: the shared contract over obstore's memory and folders, and what only
an object store can show.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from artifact_retention import ArtifactRetention, Days
from ferrule.core.errors import ConfigError
from ferrule.storage.artifacts.intake import ArtifactsUnavailable
from ferrule.storage.artifacts.objects import ObjectArtifactStore
from ferrule.storage.artifacts.store import ArtifactMissing, ArtifactStore
from ferrule.testing.artifact_conformance import MINE, ArtifactConformance
from left_open import kept_by_process

DAY = 86_400.0
PART_BYTES = 8 * 1024 * 1024

if TYPE_CHECKING:
    from obstore.store import ObjectStore

pytest.importorskip("obstore", reason="needs the extra `objects`")
pytestmark = pytest.mark.usefixtures("rust_runtimes")


class TestMemory(ArtifactConformance):
    def open_store(self) -> ArtifactStore:
        return ObjectArtifactStore("memory:///")


class TestFolder(ArtifactConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def open_store(self) -> ArtifactStore:
        return ObjectArtifactStore(f"file://{tempfile.mkdtemp(dir=self.root)}/of/many")


class TestRetention(ArtifactRetention):
    def open_limited(
        self, clock: Days, *, days: int | None = None, max_bytes: int | None = None
    ) -> ArtifactStore:
        self.objects = memory()
        return ObjectArtifactStore(self.objects, days=days, max_bytes=max_bytes, now=clock)

    def is_empty(self) -> bool:
        return paths(self.objects) == []


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 server with a bucket `kept`: moto's, where somebody has it (it is too
    large to ask for).
    """
    program = os.environ.get("FERRULE_MOTO_SERVER") or shutil.which("moto_server")
    if program is None:
        pytest.skip(
            "there is no S3 server here: install `moto[s3]` and `flask`, or name one by "
            "FERRULE_MOTO_SERVER"
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with kept_by_process():
        server = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(300):
            if server.poll() is not None:
                pytest.skip(f"`{program}` does not start")
            with contextlib.suppress(urllib.error.URLError):
                request = urllib.request.Request(f"{address}/kept", method="PUT")
                urllib.request.urlopen(request, timeout=10).close()
                break
            server_pause.wait(0.1)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=30)


server_pause = threading.Event()


class TestS3(ArtifactConformance):
    @pytest.fixture(autouse=True)
    def _bucket(self, s3: str) -> None:
        self.address = s3

    def open_store(self) -> ArtifactStore:
        return ObjectArtifactStore(bucket(self.address))


def bucket(address: str) -> ObjectStore:
    from obstore.store import S3Store

    return S3Store(
        "kept",
        prefix=f"p{uuid4().hex}",
        endpoint=address,
        region="us-east-1",
        access_key_id="testing",
        secret_access_key="testing",
        client_options={"allow_http": True},
    )


LARGE = PART_BYTES * 2 + 12_345


def paths(store: ObjectStore) -> list[str]:
    import obstore

    return sorted(one["path"] for some in obstore.list(store) for one in some)


def memory() -> ObjectStore:
    from obstore.store import MemoryStore

    return MemoryStore()


def test_a_media_type_is_kept_up_to_a_bound() -> None:
    artifacts = ObjectArtifactStore(memory())
    kept = artifacts.put(MINE, [b"x"], mime="a/" + "b" * 300)
    assert artifacts.find(MINE, kept.reference).mime == "a/" + "b" * 198


@pytest.mark.parametrize("size", [PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, LARGE])
def test_what_is_more_than_a_part_is_uploaded_in_parts_and_leaves_no_draft(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    uploads: list[int] = []
    open_writer = obstore.open_writer

    def note_size(*given: Any, buffer_size: int, **more: Any) -> Any:
        uploads.append(buffer_size)
        return open_writer(*given, buffer_size=buffer_size, **more)

    monkeypatch.setattr(obstore, "open_writer", note_size)
    store = memory()
    artifacts = ObjectArtifactStore(store)
    block = bytes(range(256)) * 256
    parts = [block] * (size // len(block)) + [block[: size % len(block)]]
    kept = artifacts.put(MINE, parts, mime="application/x-bytes")
    assert uploads == ([PART_BYTES] if size > PART_BYTES else [])
    whole = b"".join(parts)
    assert (kept.size, kept.sha256) == (size, hashlib.sha256(whole).hexdigest())
    assert b"".join(artifacts.read_chunks(MINE, kept.reference, 5)) == whole[5:]
    assert artifacts.read(MINE, kept.reference, size - 3, 10) == whole[-3:]
    assert artifacts.put(MINE, [whole]).reference == kept.reference
    assert paths(store) == [f"{MINE.key}/{kept.sha256}", f"{MINE.key}/{kept.sha256}.json"]


GROWN = """
import resource, sys
from ferrule.storage.artifacts.objects import ObjectArtifactStore
from ferrule.storage.artifacts.store import CHUNK_SIZE
from ferrule.testing.artifact_conformance import MINE
artifacts, piece = ObjectArtifactStore(sys.argv[1]), b"x" * CHUNK_SIZE
artifacts.put(MINE, [piece])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = artifacts.put(MINE, (piece for _ in range(800)))
assert kept.size == sum(map(len, artifacts.read_chunks(MINE, kept.reference))) == 800 * CHUNK_SIZE
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_two_hundred_megabytes_take_no_more_memory_than_a_few_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GROWN, f"file://{tmp_path}/objects"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert int(ran.stdout) < 10 * PART_BYTES


def test_a_source_that_breaks_after_the_first_part_leaves_no_object_at_all() -> None:
    store = memory()

    def broken() -> Iterator[bytes]:
        yield b"x" * LARGE
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        ObjectArtifactStore(store).put(MINE, broken())
    assert paths(store) == []


DIES = """
import os, signal, sys
from ferrule.storage.artifacts import objects as artifact_objects
from ferrule.testing.artifact_conformance import MINE
class Dying(artifact_objects.ObjectArtifactStore):
    def _describe(self, scope, artifact):
        os.kill(os.getpid(), signal.SIGKILL)
def parts():
    yield b"x" * (2 * artifact_objects.PART_BYTES)
    if sys.argv[2] == "upload":
        os.kill(os.getpid(), signal.SIGKILL)
Dying(sys.argv[1]).put(MINE, parts())
"""


@pytest.mark.parametrize("when", ["upload", "before-the-description"])
def test_a_process_that_dies_while_it_keeps_leaves_nothing_to_be_seen(
    tmp_path: Path, when: str
) -> None:
    url = f"file://{tmp_path}/objects"
    ran = subprocess.run([sys.executable, "-c", DIES, url, when], check=False, timeout=60)
    assert ran.returncode == -signal.SIGKILL
    clock = Days()
    artifacts = ObjectArtifactStore(url, now=clock)
    assert artifacts.list(MINE) == []
    with pytest.raises(ArtifactMissing):
        artifacts.find(MINE, f"art-{hashlib.sha256(b'x' * (2 * PART_BYTES)).hexdigest()}")
    kept = artifacts.put(MINE, [b"after"])
    clock.seconds += 2 * DAY
    assert artifacts.sweep() == 0
    assert [one.sha256 for one in artifacts.list(MINE)] == [kept.sha256]
    left = {path.name for path in (tmp_path / "objects").rglob("*") if path.is_file()}
    # What obstore had not finished in a folder has a number after its name, and is none of its
    # objects.
    assert {name for name in left if "#" not in name} == {kept.sha256, f"{kept.sha256}.json"}


def test_a_description_that_is_broken_or_of_other_bytes_describes_nothing() -> None:
    import obstore

    other = b'{"version":1,"size":3,"mime":"","lines":0,"made":1,"tool":""}'
    for broken in (b"{", b"[]", b'{"size": "many"}', other):
        store = memory()
        artifacts = ObjectArtifactStore(store)
        kept = artifacts.put(MINE, [b"data"])
        obstore.put(store, f"{MINE.key}/{kept.sha256}.json", broken)
        with pytest.raises(ArtifactMissing):
            artifacts.find(MINE, kept.reference)
        assert artifacts.list(MINE) == []


def test_a_store_that_cannot_be_reached_is_an_error_that_says_nothing_of_an_artifact() -> None:
    from obstore.store import S3Store

    store = S3Store(
        "kept",
        endpoint="http://127.0.0.1:1",
        access_key_id="testing",
        secret_access_key="s3cret",
        client_options={"allow_http": True, "timeout": "2s"},
        retry_config={"max_retries": 0},
    )
    artifacts = ObjectArtifactStore(store)
    for act in (
        lambda: artifacts.put(MINE, [b"x"]),
        lambda: artifacts.put(MINE, [b"x" * (PART_BYTES + 1)]),
        lambda: artifacts.find(MINE, "art-" + "0" * 64),
        lambda: artifacts.list(MINE),
        lambda: artifacts.delete(MINE, "art-" + "0" * 64),
        artifacts.sweep,
    ):
        with pytest.raises(ArtifactsUnavailable) as refused:
            act()
        assert "s3cret" not in str(refused.value) and "\n" not in refused.value.detail


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.com/x", "cannot be kept"),
        ("bucket", "cannot be kept"),
        ("s3://key:s3cret@bucket/x", "contains a key"),
        ("az://container/path", "Account"),
    ],
)
def test_an_address_that_is_none_is_refused_by_name_and_without_its_secret(
    url: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        ObjectArtifactStore(url)
    assert "s3cret" not in str(refused.value)


def test_objects_in_a_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    ObjectArtifactStore(f"file://{tmp_path}/of/objects").put(MINE, [b"secret"])
    assert (tmp_path / "of").stat().st_mode & 0o777 == 0o700
