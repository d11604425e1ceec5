"""A cache of the vectors of tool descriptions and examples, which take seconds to compute.

They are the same in every run. The cache is a SQLite file beside the models; one that cannot be
read or written only costs time. Nothing that a person said is kept in it. The vectors of the tools
that ship come with Ferrule, for the embedded model (`make lab NAME=tool-vectors`).
"""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

SHIPPED = Path(__file__).with_name("tool_vectors.sqlite")
"""The vectors that come with Ferrule, in the same form."""


class VectorCache:
    """Vectors by text, for one model file, as 32-bit floats."""

    def __init__(self, folder: Path, model: Path) -> None:
        with model.open("rb") as stream:
            # The head of a GGUF file contains its metadata; with name and size it identifies it.
            head = stream.read(1 << 16)
        self._model_digest = hashlib.sha256(
            f"{model.name}:{model.stat().st_size}:".encode() + head
        ).digest()
        self._known: dict[bytes, list[float]] = {}
        self._file = folder / "vectors.sqlite"

    def get(self, texts: Sequence[str]) -> dict[str, list[float]]:
        """Return the vectors of those texts that are known."""
        keys = {self._key(text): text for text in texts}
        unknown: list[bytes] = [key for key in keys if key not in self._known]
        for file in (SHIPPED, self._file):
            if unknown and file.is_file():
                self._known.update(_read_vectors(file, unknown))
                unknown = [key for key in unknown if key not in self._known]
        return {text: self._known[key] for key, text in keys.items() if key in self._known}

    def put(self, vectors: Mapping[str, Sequence[float]]) -> None:
        """Store vectors. What cannot be written is kept for this process only."""
        rows = [(self._key(text), array("f", vector).tobytes()) for text, vector in vectors.items()]
        self._known.update({key: list(array("f", blob)) for key, blob in rows})
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as database, database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) "
                    "WITHOUT ROWID"
                )
                database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        except (OSError, sqlite3.Error):
            return

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=2.0)

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(self._model_digest + text.encode()).digest()


def _read_vectors(file: Path, keys: Sequence[bytes]) -> dict[bytes, list[float]]:
    placeholders = ",".join("?" * len(keys))
    # What ships may lie where nothing can be written, not even the lock of a reader.
    mode = "mode=ro&immutable=1" if file == SHIPPED else "mode=rw"
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?{mode}", uri=True, timeout=2.0)) as database:
            # Only question marks are put into the statement.
            rows = database.execute(
                f"SELECT key, vector FROM vectors WHERE key IN ({placeholders})", keys
            ).fetchall()
    except sqlite3.Error:
        return {}
    found: dict[bytes, list[float]] = {}
    for key, blob in rows:
        vector = array("f")
        vector.frombytes(blob)
        found[bytes(key)] = list(vector)
    return found
