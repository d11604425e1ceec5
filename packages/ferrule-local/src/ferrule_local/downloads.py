"""Pulls a model file from a URL or a path, and records its hash.

A download is resumed where it stopped (`Range`, only with the server's strong validator unchanged),
appears under its name complete, and is recorded with its hash; a later change of its bytes is found
before it is loaded. A file that is already on this machine stays where it is and is recorded alike.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.models.http.transport import ResponseStream, Timeouts, Transport
from ferrule.models.http.web_request import MAX_REDIRECTS, RedirectRefused, follow_redirect

from . import gguf
from .installed_models import (
    ModelRecord,
    hash_file,
    make_folder,
    models_folder,
    read_records,
    write_record,
)
from .known_models import MODELS

Progress = Callable[[int, int], None]
"""`progress(done, total)` in bytes; `total` is 0 where the server does not say it."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_SUFFIX = ".gguf"
_NOTE_SUFFIX = ".resume"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_ATTEMPTS = 5
_MAX_BYTES = 1 << 40
_TIMEOUTS = Timeouts(connect=20.0, idle=60.0, total=None)


def choose_name(source: str, wanted: str = "") -> str:
    """Return the name under which a model is recorded: the wanted one, or one from its file's name.

    Raises:
        ConfigError: It is not a name, or it is that of a known model.
    """
    file = unquote(urlsplit(source).path) if is_url(source) else source
    stem = Path(file).name.lower().removesuffix(_SUFFIX)
    name = wanted or re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-.")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"`{name}` cannot be the name of a model",
            code="model",
            hint="`--name NAME`: small letters, digits, `.`, `_` and `-`",
        )
    if name in MODELS:
        raise ConfigError(
            f"`{name}` is the name of a model that Ferrule knows",
            code="model",
            hint="choose another one with `--name NAME`",
        )
    return name


def is_url(source: str) -> bool:
    """Return whether a source is a URL, not a name or a path."""
    return source.startswith(("http://", "https://"))


def record_file(path: Path, name: str = "", sha256: str = "") -> ModelRecord:
    """Record a model file of this machine, where it is.

    Raises:
        ConfigError: The name cannot be used.
        ProviderError: `model_missing`, `model_damaged` (no model), `bad_hash`.
    """
    place = Path(os.path.realpath(path.expanduser()))
    chosen = choose_name(str(place), name)
    if not place.is_file():
        raise ProviderError(
            f"the model file `{place}` does not exist", code="model_missing", hint="check the path"
        )
    check_is_model(place)
    return _write(ModelRecord(chosen, str(place), place.stat().st_size, "", str(path)), sha256)


def check_is_model(place: Path) -> None:
    """Check that a file is a language model, by its head.

    Raises:
        ProviderError: `model_damaged` if it is not GGUF; `not_a_model` if it is a part of one.
    """
    try:
        facts = gguf.read_facts(place)
    except (OSError, ValueError) as problem:
        raise ProviderError(f"{place} cannot be used: {problem}", code="model_damaged") from problem
    if facts.kind == "model":
        return
    what = "a projector for pictures" if facts.kind == "mmproj" else f"of the kind `{facts.kind}`"
    raise ProviderError(
        f"{place} is {what}, not a language model",
        code="not_a_model",
        hint="name the file of the language model; a projector or an adapter is not loaded",
    )


async def pull_url(
    url: str,
    name: str = "",
    sha256: str = "",
    progress: Progress = lambda done, total: None,
) -> ModelRecord:
    """Fetch a model file into the models' folder. What is there of an earlier try is kept.

    Raises:
        ConfigError: The name or the URL cannot be used.
        ProviderError: `pull_failed`, `bad_hash` (nothing is kept), `model_damaged`, and what the
            transport raises.
    """
    chosen = choose_name(url, name)
    part = _PartialFile(models_folder() / "downloads" / f"{chosen}{_SUFFIX}.part", url)
    sender = Transport(timeouts=_TIMEOUTS)
    try:
        await _fetch_all(url, part, sender, progress)
    finally:
        part.close()
        await sender.close()
    return await asyncio.to_thread(_install, part.place, chosen, url, sha256)


def _install(part: Path, name: str, url: str, sha256: str) -> ModelRecord:
    """Check a whole download, and give it its name and its record."""
    try:
        check_is_model(part)
        found = hash_file(part)
        _check_hash(found, sha256, url)
    except ProviderError:
        part.unlink(missing_ok=True)
        raise
    finally:
        part.with_suffix(_NOTE_SUFFIX).unlink(missing_ok=True)
    file = f"{name}{_SUFFIX}"
    place = models_folder() / file
    part.replace(place)
    record = ModelRecord(name, file, place.stat().st_size, found, _without_query(url))
    write_record(record)
    return record


def _write(record: ModelRecord, sha256: str) -> ModelRecord:
    found = hash_file(models_folder() / record.file)
    _check_hash(found, sha256, record.source)
    before = read_records().get(record.name)
    if before is not None and before.file != record.file:
        raise ConfigError(
            f"there is a model `{record.name}` already: {before.source}",
            code="model",
            hint="choose another name with `--name NAME`",
        )
    recorded = ModelRecord(record.name, record.file, record.size, found, record.source)
    write_record(recorded)
    return recorded


def _check_hash(found: str, wanted: str, source: str) -> None:
    if wanted and found != wanted.lower():
        raise ProviderError(
            f"{_without_query(source)} has the SHA-256 {found}, not the expected one",
            code="bad_hash",
            hint="nothing of it is used; check the source and the hash",
        )


def _without_query(url: str) -> str:
    """Return a URL without its query, which may hold a credential."""
    return url.partition("?")[0] if is_url(url) else url


class _PartialFile:
    """A download on its way: the bytes so far, and by what the server recognises them."""

    def __init__(self, place: Path, url: str) -> None:
        self.place = place
        self.url = url
        self._note = place.with_suffix(_NOTE_SUFFIX)
        self._file: BinaryIO | None = None
        make_folder(place.parent)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.place.stat().st_size if self.place.is_file() else 0

    def read_note(self) -> dict[str, Any]:
        """Return what is known of the file; nothing if the bytes may be of another one."""
        with suppress(OSError, ValueError):
            note: dict[str, Any] = parse_json(self._note.read_text())
            if note.get("url") == self.url and note.get("validator"):
                return note
        return {}

    def begin(self, at: int, headers: Mapping[str, str], total: int) -> None:
        """Write from here on. A weak validator does not tell bytes apart and is not noted."""
        tag = headers.get("etag", "")
        is_strong = bool(tag) and not tag.startswith("W/")
        validator = tag if is_strong else headers.get("last-modified", "")
        self._note.write_text(json.dumps({"url": self.url, "validator": validator, "total": total}))
        self.close()
        self._file = self.place.open("r+b" if at else "wb")
        self._file.seek(at)
        self._file.truncate()

    def write(self, data: bytes) -> None:
        """Add bytes."""
        assert self._file is not None, "begin() was not called"
        try:
            self._file.write(data)
        except OSError as error:
            raise ProviderError(
                f"`{self.place}` could not be written: {error.strerror}",
                code="disk",
                hint="free some space and pull again: what has arrived is kept",
            ) from error

    def close(self) -> None:
        """Bring everything to the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


async def _fetch_all(url: str, part: _PartialFile, sender: Transport, progress: Progress) -> None:
    """Fetch until the file is whole, each time from where it stopped."""
    for attempt in range(_ATTEMPTS):
        before = part.size
        try:
            await _fetch_rest(url, part, sender, progress)
        except ProviderError as problem:
            part.close()
            is_last = attempt + 1 == _ATTEMPTS
            is_break = problem.retryable or problem.code in ("interrupted", "timeout")
            if not is_break or part.size <= before or is_last:
                raise
        else:
            return


async def _fetch_rest(url: str, part: _PartialFile, sender: Transport, progress: Progress) -> None:
    note = part.read_note()
    wanted = part.size if note else 0
    headers: dict[str, str] = {}
    if wanted:
        headers = {"Range": f"bytes={wanted}-", "If-Range": note["validator"]}
    async with _open(url, headers, sender) as answer:
        if answer.status == 416 and wanted and wanted == note.get("total"):
            return
        if answer.status not in (200, 206):
            raise _refusal(url, answer.status)
        done, total = _read_extent(answer, wanted)
        part.begin(done, answer.headers, total)
        progress(done, total)
        while data := await answer.read_chunk():
            part.write(data)
            done += len(data)
            progress(done, total)
    if total and done != total:
        raise ProviderError(
            f"{_without_query(url)} ended after {done} of {total} bytes",
            code="pull_failed",
            retryable=True,
        )


def _read_extent(answer: ResponseStream, wanted: int) -> tuple[int, int]:
    """Return where the body begins in the file, and the size of the file (0: unknown)."""
    if answer.status == 206:
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
        if match is None or int(match[1]) != wanted:
            raise ProviderError("the server sent another part than asked for", code="pull_failed")
        return wanted, 0 if match[2] == "*" else int(match[2])
    length = answer.headers.get("content-length", "")
    return 0, int(length) if length.isdigit() else 0


@asynccontextmanager
async def _open(
    url: str, headers: dict[str, str], sender: Transport
) -> AsyncGenerator[ResponseStream]:
    """Open a GET, following redirects; never from https to http."""
    for _ in range(MAX_REDIRECTS + 1):
        async with sender.download(url, headers, limit=_MAX_BYTES) as answer:
            location = answer.headers.get("location", "")
            try:
                following = follow_redirect("GET", url, headers, answer.status, location)
            except RedirectRefused as refused:
                raise ProviderError(f"not followed: {refused}", code="pull_failed") from refused
            if following is None:
                yield answer
                return
            url = following.url
    raise ProviderError(f"{_without_query(url)} redirects too often", code="pull_failed")


def _refusal(url: str, status: int) -> ProviderError:
    return ProviderError(
        f"{_without_query(url)} answered with status {status}",
        code="pull_failed",
        hint="check the address; a file that needs signing in is fetched by hand and pulled by "
        "its path",
        retryable=status >= 500,
    )
