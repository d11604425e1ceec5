"""Bundles: recorded sessions in one file, with the artifacts that they refer to, for another
machine or a test.

A bundle is a zip file (`*.ferrule`) that holds

    manifest.json       {"ferrule":"bundle","format":1,"sessions":[{"session","events","hash"}],
                         "artifacts":[{"session","sha256","size","mime","tool"}]}
    journal.jsonl       the sessions, as `jsonl` writes them: chain and hashes included
    artifacts/<sha256>  the bytes of each artifact

Everything is checked when it is read: the chain of each session against itself and against the
manifest's hash, each artifact against its name. What a bundle cannot show is that its sessions ever
happened: whoever makes one can compute all of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.errors import JournalError
from ferrule.core.events import Record
from ferrule.core.frozen import frozen
from ferrule.core.identity import Identity
from ferrule.storage.artifacts.store import PIECE, ArtifactStore, Scope
from ferrule.storage.audit.verification import opened
from ferrule.storage.journal.sqlite import Journal

from .jsonl import import_jsonl, jsonl, read_jsonl

FORMAT = 1
SUFFIX = ".ferrule"
_MOST_MANIFEST = 16 << 20
_MOST_JOURNAL = 4 << 30
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
"""What reading from a zip file raises: nothing there, broken, cut off, packed in another way,
encrypted, no text.
"""


@frozen
class Bundled:
    """A session of a bundle: how many events, and the hash of the last."""

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
) -> list[Bundled]:
    """Write these sessions (ids, or beginnings of them) to a new file; what is in it.

    Raises SessionNotFound, JournalError (also if a session does not verify), FileExistsError.
    """
    found = list({info.session: info for info in map(journal.find, sessions)}.values())
    bundled: list[Bundled] = []
    kept: list[BundledArtifact] = []
    with path.open("xb") as file:
        try:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
                with bundle.open("journal.jsonl", "w", force_zip64=True) as lines:
                    for number, info in enumerate(found):
                        journal.verify(info.session)
                        bundled.append(_journaled(journal, info.session, lines, header=number == 0))
                if artifacts is not None:
                    for info in found:
                        kept += _kept(
                            bundle, artifacts, Scope(info.tenant, info.user, info.session), kept
                        )
                manifest = {
                    "ferrule": "bundle",
                    "format": FORMAT,
                    "sessions": [asdict(one) for one in bundled],
                    "artifacts": [asdict(one) for one in kept],
                }
                bundle.writestr("manifest.json", compact(manifest))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return bundled


def _journaled(journal: Journal, session: str, lines: Any, *, header: bool) -> Bundled:
    # What is appended from now on belongs to another bundle.
    seq, digest = journal.head(session)
    records = takewhile(lambda record: record.seq <= seq, journal.records(session))
    for number, text in enumerate(jsonl(records)):
        if number or header:
            lines.write(text.encode("utf-8"))
    return Bundled(session, seq, digest)


def _kept(
    bundle: zipfile.ZipFile, artifacts: ArtifactStore, scope: Scope, before: list[BundledArtifact]
) -> Iterator[BundledArtifact]:
    there = {one.sha256 for one in before}
    for artifact in artifacts.list(scope):
        if artifact.sha256 not in there:
            there.add(artifact.sha256)
            with bundle.open(f"artifacts/{artifact.sha256}", "w", force_zip64=True) as file:
                for piece in artifacts.pieces(scope, artifact.reference):
                    file.write(piece)
        yield BundledArtifact(
            scope.session, artifact.sha256, artifact.size, artifact.mime, artifact.tool
        )


class Bundle:
    """A bundle that is being read; made by `open_bundle`. `sessions` and `artifacts` are what its
    manifest says.
    """

    def __init__(self, file: zipfile.ZipFile, name: str) -> None:
        self._file = file
        self._name = name
        manifest = self._manifest()
        try:
            self.sessions = [Bundled(**one) for one in manifest["sessions"]]
            self.artifacts = [BundledArtifact(**one) for one in manifest["artifacts"]]
        except (KeyError, TypeError) as error:
            raise self._wrong(f"the manifest is not one ({error})") from error
        if not (_typed(self.sessions) and _typed(self.artifacts)):
            raise self._wrong("the manifest is not one (a value has another type)")
        if stray := {one.session for one in self.artifacts} - {
            one.session for one in self.sessions
        }:
            raise self._wrong(f"it has an artifact of `{min(stray)}`, and no such session")

    def records(self) -> Iterator[Iterator[Record]]:
        """The sessions, each as its records, in order. Raises JournalError where a chain breaks or
        is not the manifest's.
        """
        expected = {one.session: one for one in self.sessions}
        for session, records in groupby(
            read_jsonl(self.lines()), key=lambda record: record.session
        ):
            if (bundled := expected.pop(session, None)) is None:
                raise self._wrong(f"session `{session}` is not in the manifest")
            yield self._checked(records, bundled)
        if expected:
            raise self._wrong(f"session `{next(iter(expected))}` is missing")

    def content(self, artifact: BundledArtifact) -> Iterator[bytes]:
        """The bytes of an artifact, in pieces. Raises JournalError after the last if they are not
        those of its name.
        """
        digest, size = hashlib.sha256(), 0
        try:
            with self._file.open(f"artifacts/{artifact.sha256}") as file:
                while piece := file.read(PIECE):
                    size += len(piece)
                    if size > artifact.size:
                        break
                    digest.update(piece)
                    yield piece
        except _UNREADABLE as error:
            raise self._wrong(
                f"artifact {artifact.sha256[:12]}… cannot be read ({error})"
            ) from error
        if size != artifact.size or digest.hexdigest() != artifact.sha256:
            raise self._wrong(f"artifact {artifact.sha256[:12]}… was changed")

    def lines(self) -> Iterator[str]:
        """Its journal as it stands, line by line."""
        try:
            info = self._file.getinfo("journal.jsonl")
            if info.file_size > _MOST_JOURNAL:
                raise self._wrong(
                    f"its journal has {info.file_size} bytes, at most {_MOST_JOURNAL} are read"
                )
            with self._file.open(info) as file:
                yield from io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        except _UNREADABLE as error:
            raise self._wrong(f"its journal cannot be read ({error})") from error

    def _checked(self, records: Iterator[Record], bundled: Bundled) -> Iterator[Record]:
        record: Record | None = None
        for record in records:
            yield record
        if record is None or (record.seq, record.hash) != (bundled.events, bundled.hash):
            raise self._wrong(
                f"session `{bundled.session}` does not end where the manifest says: it was cut"
            )

    def _manifest(self) -> dict[str, Any]:
        try:
            info = self._file.getinfo("manifest.json")
            manifest = (
                json.loads(self._file.read(info)) if info.file_size <= _MOST_MANIFEST else None
            )
        except (*_UNREADABLE, ValueError) as error:
            raise self._wrong("it has no manifest that can be read") from error
        if (
            not isinstance(manifest, dict)
            or cast("dict[str, Any]", manifest).get("ferrule") != "bundle"
        ):
            raise self._wrong("it is no bundle of Ferrule")
        manifest = cast("dict[str, Any]", manifest)
        if manifest.get("format") != FORMAT:
            raise self._wrong(f"format {manifest.get('format')}, this version reads {FORMAT}")
        return manifest

    def _wrong(self, what: str) -> JournalError:
        return JournalError(f"`{self._name}`: {what}", code="bundle_corrupt")


def _typed(rows: Iterable[Bundled | BundledArtifact]) -> bool:
    """Whether the values of a manifest are what they should be: it is read from a file that anybody
    may have made.
    """
    return all(
        type(value) is (int if name in ("events", "size") else str)
        for row in rows
        for name, value in asdict(row).items()
    )


@contextmanager
def open_bundle(path: Path) -> Generator[Bundle]:
    """Open a bundle for reading. Raises JournalError (`bundle_corrupt`) for what is none,
    OSError.
    """
    try:
        file = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise JournalError(
            f"`{path.name}`: it is no bundle of Ferrule", code="bundle_corrupt"
        ) from error
    with file:
        yield Bundle(file, path.name)


def recorded(path: Path) -> Iterator[list[Record]]:
    """The sessions of a bundle, an export (`*.jsonl`) or an archive (`*.jsonl.gz`), each as its
    records. Raises JournalError, OSError.
    """
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        with opened(path) as lines:
            for _, records in groupby(read_jsonl(lines), key=lambda record: record.session):
                yield list(records)
        return
    with open_bundle(path) as bundle:
        for records in bundle.records():
            yield list(records)


def import_bundle(
    path: Path,
    journal: Journal,
    artifacts: ArtifactStore | None = None,
    *,
    identity: Identity | None = None,
) -> list[str]:
    """Add the sessions of a bundle to a journal, and what they keep to a store; the names of the
    sessions.

    Everything is checked before anything is written. With an `identity` they become its tenant's
    and user's, as `import_jsonl` does. Raises JournalError.
    """
    with open_bundle(path) as bundle:
        owners: dict[str, tuple[str, str]] = {}
        for records in bundle.records():
            for record in records:
                owners[record.session] = (record.tenant, record.user)
        for artifact in bundle.artifacts:
            for _ in bundle.content(artifact):
                pass
        sessions = import_jsonl(journal, bundle.lines(), identity=identity)
        for artifact in bundle.artifacts:
            if artifacts is None:
                break
            tenant, user = (
                (identity.tenant, identity.user) if identity else owners[artifact.session]
            )
            scope = Scope(tenant, user, artifact.session)
            artifacts.put(scope, bundle.content(artifact), mime=artifact.mime, tool=artifact.tool)
    return sessions
