"""Bundles: sessions and their artifacts in one file, for another machine or a test.

A bundle is a zip file (`*.ferrule`) that contains

    manifest.json       {"ferrule":"bundle","format":1,"sessions":[{"session","events","hash"}],
                         "artifacts":[{"session","sha256","size","mime","tool"}]}
    journal.jsonl       the sessions, as `jsonl` writes them: chain and hashes included
    artifacts/<sha256>  the bytes of each artifact

Everything is checked when it is read: the chain of each session against itself and against the
manifest's hash, each artifact against its name. A bundle cannot prove that its sessions ever
happened: whoever makes one can compute all of it.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import JournalError
from ferrule.core.events import JournalRecord
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.storage.artifacts.store import CHUNK_SIZE, ArtifactStore, Scope
from ferrule.storage.audit.verification import open_lines
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo

from .jsonl import export_jsonl, import_jsonl, read_jsonl, split_lines

FORMAT = 1
_MAX_MANIFEST = 16 << 20
_MAX_JOURNAL = 4 << 30
_UNREADABLE = (
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
    OSError,
)
"""What reading from a zip file raises.

The member is missing, damaged, cut off, compressed in another way, encrypted, or not text.
"""


@frozen
class BundledSession:
    """A session of a bundle: the number of its events, and the hash of the last."""

    session: str
    events: int
    hash: str


@frozen
class BundledArtifact:
    """An artifact of a bundle, and the session that it belongs to."""

    session: str
    sha256: str
    size: int
    mime: str
    tool: str


def write_bundle(
    path: Path, journal: Journal, sessions: Iterable[str], artifacts: ArtifactStore | None = None
) -> list[BundledSession]:
    """Write these sessions (ids, or beginnings of them) to a new file; return what is in it.

    Raises:
        SessionNotFound: There is no such session.
        JournalError: A session cannot be read or does not verify.
        FileExistsError: The file exists.
    """
    infos = list({info.session: info for info in map(journal.find, sessions)}.values())
    with path.open("xb") as file:
        try:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
                return _write_members(bundle, journal, infos, artifacts)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _write_members(
    bundle: zipfile.ZipFile,
    journal: Journal,
    infos: list[SessionInfo],
    artifacts: ArtifactStore | None,
) -> list[BundledSession]:
    bundled: list[BundledSession] = []
    bundled_artifacts: list[BundledArtifact] = []
    with bundle.open("journal.jsonl", "w", force_zip64=True) as lines:
        for number, info in enumerate(infos):
            journal.verify(info.session)
            bundled.append(_write_session(journal, info.session, lines, header=number == 0))
    if artifacts is not None:
        for info in infos:
            scope = Scope(info.tenant, info.user, info.session)
            bundled_artifacts += _write_artifacts(bundle, artifacts, scope, bundled_artifacts)
    manifest = {
        "ferrule": "bundle",
        "format": FORMAT,
        "sessions": [asdict(one) for one in bundled],
        "artifacts": [asdict(one) for one in bundled_artifacts],
    }
    bundle.writestr("manifest.json", encode_json(manifest))
    return bundled


def _write_session(journal: Journal, session: str, lines: Any, *, header: bool) -> BundledSession:
    # What is appended from now on is left out.
    seq, digest = journal.head(session)
    records = takewhile(lambda record: record.seq <= seq, journal.records(session))
    for number, text in enumerate(export_jsonl(records)):
        if number or header:
            lines.write(text.encode("utf-8"))
    return BundledSession(session, seq, digest)


def _write_artifacts(
    bundle: zipfile.ZipFile, artifacts: ArtifactStore, scope: Scope, before: list[BundledArtifact]
) -> Iterator[BundledArtifact]:
    written = {one.sha256 for one in before}
    for artifact in artifacts.list(scope):
        if artifact.sha256 not in written:
            written.add(artifact.sha256)
            with bundle.open(f"artifacts/{artifact.sha256}", "w", force_zip64=True) as file:
                for piece in artifacts.read_chunks(scope, artifact.reference):
                    file.write(piece)
        yield BundledArtifact(
            scope.session, artifact.sha256, artifact.size, artifact.mime, artifact.tool
        )


class Bundle:
    """A bundle that is being read; created by `open_bundle`.

    `sessions` and `artifacts` are what its manifest says.
    """

    def __init__(self, file: zipfile.ZipFile, name: str) -> None:
        self._file = file
        self._name = name
        manifest = self._read_manifest()
        try:
            self.sessions = [BundledSession(**one) for one in manifest["sessions"]]
            self.artifacts = [BundledArtifact(**one) for one in manifest["artifacts"]]
        except (KeyError, TypeError) as error:
            raise self._corrupt(f"the manifest is invalid ({error})") from error
        if not (_has_right_types(self.sessions) and _has_right_types(self.artifacts)):
            raise self._corrupt("the manifest is invalid (a value has a wrong type)")
        owners = {one.session for one in self.artifacts}
        unknown = owners - {one.session for one in self.sessions}
        if unknown:
            raise self._corrupt(f"it has an artifact of `{min(unknown)}`, and no such session")

    def read_sessions(self) -> Iterator[Iterator[JournalRecord]]:
        """Yield the sessions in order, each as its records.

        Raises:
            JournalError: A chain does not hold or differs from the manifest.
        """
        expected = {one.session: one for one in self.sessions}
        for session, records in groupby(
            read_jsonl(self.read_lines()), key=lambda record: record.session
        ):
            bundled = expected.pop(session, None)
            if bundled is None:
                raise self._corrupt(f"session `{session}` is not in the manifest")
            yield self._check_end(records, bundled)
        if expected:
            raise self._corrupt(f"session `{next(iter(expected))}` is missing")

    def read_artifact(self, artifact: BundledArtifact) -> Iterator[bytes]:
        """Yield the bytes of an artifact, in pieces.

        Raises JournalError after the last piece if the bytes do not match the artifact's hash.
        """
        digest = hashlib.sha256()
        size = 0
        try:
            with self._file.open(f"artifacts/{artifact.sha256}") as file:
                while piece := file.read(CHUNK_SIZE):
                    size += len(piece)
                    if size > artifact.size:
                        break
                    digest.update(piece)
                    yield piece
        except _UNREADABLE as error:
            raise self._corrupt(
                f"artifact {artifact.sha256[:12]}… cannot be read ({error})"
            ) from error
        if size != artifact.size or digest.hexdigest() != artifact.sha256:
            raise self._corrupt(f"artifact {artifact.sha256[:12]}… was changed")

    def read_lines(self) -> Iterator[str]:
        """Yield its journal line by line, unchecked."""
        try:
            info = self._file.getinfo("journal.jsonl")
            if info.file_size > _MAX_JOURNAL:
                raise self._corrupt(
                    f"its journal has {info.file_size} bytes, at most {_MAX_JOURNAL} are read"
                )
            with self._file.open(info) as file:
                for line in split_lines(file):
                    yield line.decode()
        except _UNREADABLE as error:
            raise self._corrupt(f"its journal cannot be read ({error})") from error

    def _check_end(
        self, records: Iterator[JournalRecord], bundled: BundledSession
    ) -> Iterator[JournalRecord]:
        record: JournalRecord | None = None
        for record in records:
            yield record
        if record is None or (record.seq, record.hash) != (bundled.events, bundled.hash):
            raise self._corrupt(
                f"session `{bundled.session}` does not end where the manifest says: it was cut"
            )

    def _read_manifest(self) -> dict[str, Any]:
        try:
            info = self._file.getinfo("manifest.json")
            content: Any = None
            if info.file_size <= _MAX_MANIFEST:
                content = parse_json(self._file.read(info))
        except (*_UNREADABLE, ValueError) as error:
            raise self._corrupt("its manifest cannot be read") from error
        manifest = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
        if manifest.get("ferrule") != "bundle":
            raise self._corrupt("it is not a Ferrule bundle")
        if manifest.get("format") != FORMAT:
            raise self._corrupt(f"format {manifest.get('format')}, this version reads {FORMAT}")
        return manifest

    def _corrupt(self, what: str) -> JournalError:
        return JournalError(f"`{self._name}`: {what}", code="bundle_corrupt")


def _has_right_types(rows: Iterable[BundledSession | BundledArtifact]) -> bool:
    """Return whether a manifest's values have the right types: anybody may have made the file."""
    for row in rows:
        for name, value in asdict(row).items():
            expected = int if name in ("events", "size") else str
            if type(value) is not expected:
                return False
    return True


@contextmanager
def open_bundle(path: Path) -> Generator[Bundle]:
    """Open a bundle for reading.

    Raises:
        JournalError: The file is not a bundle (`bundle_corrupt`).
        OSError: The file cannot be read.
    """
    try:
        file = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise JournalError(
            f"`{path.name}`: it is not a Ferrule bundle", code="bundle_corrupt"
        ) from error
    with file:
        yield Bundle(file, path.name)


def read_recording(path: Path) -> Iterator[list[JournalRecord]]:
    """Yield each session's records from a bundle, an export (`*.jsonl`) or an archive (`*.gz`).

    Raises JournalError, OSError.
    """
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        with open_lines(path) as lines:
            for _, records in groupby(read_jsonl(lines), key=lambda record: record.session):
                yield list(records)
        return
    with open_bundle(path) as bundle:
        for records in bundle.read_sessions():
            yield list(records)


def import_bundle(
    path: Path,
    journal: Journal,
    artifacts: ArtifactStore | None = None,
    *,
    identity: Identity | None = None,
) -> list[str]:
    """Add the sessions of a bundle to a journal, and its artifacts to a store; return the sessions.

    Everything is checked before anything is written. With an `identity` they are given to its
    tenant and user, as in `import_jsonl`. Raises JournalError.
    """
    with open_bundle(path) as bundle:
        owners: dict[str, tuple[str, str]] = {}
        for records in bundle.read_sessions():
            for record in records:
                owners[record.session] = (record.tenant, record.user)
        for artifact in bundle.artifacts:
            for _ in bundle.read_artifact(artifact):
                pass
        sessions = import_jsonl(journal, bundle.read_lines(), identity=identity)
        for artifact in bundle.artifacts:
            if artifacts is None:
                break
            tenant, user = owners[artifact.session]
            if identity is not None:
                tenant, user = identity.tenant, identity.user
            scope = Scope(tenant, user, artifact.session)
            artifacts.put(
                scope, bundle.read_artifact(artifact), mime=artifact.mime, tool=artifact.tool
            )
    return sessions
