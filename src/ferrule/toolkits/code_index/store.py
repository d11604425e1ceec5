"""What the index knows, in SQLite: files, their definitions, and the names they use.

A file of Ferrule's own outside the workspace, or memory. Nothing in it is needed: it can be deleted
at any time and is made again. One connection, used by one thread at a time (`_lock`); other
processes may have the same file open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.storage.paths import make_private_folder
from ferrule.tools.forking import finalize_quietly, make_rlock

from .parser_process import Definition, FileSymbols

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, size INTEGER NOT NULL,
    modified REAL NOT NULL, checked REAL NOT NULL, digest BLOB NOT NULL,
    language TEXT NOT NULL, problem TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS definitions (
    file INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, line INTEGER NOT NULL,
    last INTEGER NOT NULL, container TEXT NOT NULL, head TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS definitions_by_file ON definitions (file);
CREATE INDEX IF NOT EXISTS definitions_by_name ON definitions (name COLLATE NOCASE);
CREATE TABLE IF NOT EXISTS names (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS uses (
    name INTEGER NOT NULL, file INTEGER NOT NULL, lines BLOB NOT NULL,
    PRIMARY KEY (name, file)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uses_by_file ON uses (file);
"""


@frozen
class IndexedFile:
    """What the index knows of a file. `checked` is when it was read, in seconds since 1970."""

    id: int
    path: str
    size: int
    modified: float
    checked: float
    digest: bytes
    language: str = ""
    problem: str = ""


@frozen
class Found:
    """A definition and its file."""

    path: str
    definition: Definition
    file: int = 0


def _prepare(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")  # It can be made again.
    database.execute("PRAGMA secure_delete = ON")  # What may no longer be read is gone.
    if database.execute("PRAGMA user_version").fetchone()[0] != _FORMAT:
        for table in ("files", "definitions", "names", "uses"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute(f"PRAGMA user_version = {_FORMAT}")
    database.executescript(_SCHEMA)


class IndexStore:
    """The tables of one workspace. Thread-safe; every method blocks.

    Args:
        path: The file; None keeps everything in memory.

    Raises:
        FerruleError: The file cannot be opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = make_rlock(is_quiet=True)
        self.generation = 0
        """Grows with every change made through this object."""
        if path is not None:
            make_private_folder(path.parent)
        try:
            with self._lock:
                self._database = self._open(path)
        except sqlite3.DatabaseError as error:
            raise FerruleError(
                f"the code index `{path}` cannot be opened: {error}",
                code="index",
                hint="delete the file; it is made again",
            ) from error

    def _open(self, path: Path | None) -> sqlite3.Connection:
        if path is not None and not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(
            str(path) if path is not None else ":memory:",
            check_same_thread=False,
            timeout=10,
            isolation_level=None,
        )
        self._finalizer = finalize_quietly(self, self._lock, database.close)
        try:
            _prepare(database)
        except BaseException:
            self.close()
            raise
        return database

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock:
            self._finalizer()

    @contextmanager
    def _change(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
            self.generation += 1

    def _ask(self, question: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        with self._lock:
            return self._database.execute(question, values).fetchall()

    # Changing

    def put(self, rows: Iterable[tuple[IndexedFile, FileSymbols]]) -> None:
        """Keep what was found in files, in place of what was known of them. Ids are ignored."""
        with self._change() as database:
            for file, symbols in rows:
                self._remove(database, file.path)
                self._insert(database, file, symbols)

    def touch(self, rows: Iterable[IndexedFile]) -> None:
        """Keep new times of files whose content is the same."""
        with self._change() as database:
            database.executemany(
                "UPDATE files SET size = ?, modified = ?, checked = ? WHERE id = ?",
                [(row.size, row.modified, row.checked, row.id) for row in rows],
            )

    def remove(self, paths: Iterable[str]) -> None:
        """Forget files."""
        with self._change() as database:
            for path in paths:
                self._remove(database, path)
            # A name can be telling, too.
            database.execute("DELETE FROM names WHERE id NOT IN (SELECT name FROM uses)")

    def _remove(self, database: sqlite3.Connection, path: str) -> None:
        found = database.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if found is None:
            return
        for table in ("definitions", "uses"):
            database.execute(f"DELETE FROM {table} WHERE file = ?", found)
        database.execute("DELETE FROM files WHERE id = ?", found)

    def _insert(
        self, database: sqlite3.Connection, file: IndexedFile, symbols: FileSymbols
    ) -> None:
        row = database.execute(
            "INSERT INTO files (path, size, modified, checked, digest, language, problem) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                file.path,
                file.size,
                file.modified,
                file.checked,
                file.digest,
                file.language,
                symbols.problem,
            ),
        ).lastrowid
        database.executemany(
            "INSERT INTO definitions VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (row, one.name, one.kind, one.line, one.end, one.container, one.head)
                for one in symbols.definitions
            ],
        )
        uses = symbols.uses or {}
        database.executemany("INSERT OR IGNORE INTO names (name) VALUES (?)", zip(uses))
        database.executemany(
            "INSERT INTO uses SELECT id, ?, ? FROM names WHERE name = ?",
            [(row, _pack(lines), name) for name, lines in uses.items()],
        )

    # Asking

    def files(self) -> dict[str, IndexedFile]:
        """Return all files by path."""
        rows = self._ask(
            "SELECT id, path, size, modified, checked, digest, language, problem FROM files"
        )
        return {str(row[1]): IndexedFile(*row) for row in rows}  # pyright: ignore[reportArgumentType]  the columns of the table

    def find(self, path: str) -> IndexedFile | None:
        """Return what is known of a file."""
        rows = self._ask(
            "SELECT id, path, size, modified, checked, digest, language, problem FROM files "
            "WHERE path = ?",
            (path,),
        )
        return IndexedFile(*rows[0]) if rows else None  # pyright: ignore[reportArgumentType]  the columns of the table

    def list_unparsed(self) -> list[tuple[str, str]]:
        """Return the files of which nothing is known, each with the reason."""
        rows = self._ask("SELECT path, problem FROM files WHERE problem != '' ORDER BY path")
        return [(str(path), str(problem)) for path, problem in rows]

    def count(self) -> int:
        """Return the number of files."""
        return int(str(self._ask("SELECT count(*) FROM files")[0][0]))

    def find_definitions(self, name: str, *, contains: bool = False, limit: int) -> list[Found]:
        """Return definitions by name, whatever its case; with `contains`, by a part of it."""
        if contains:
            escaped = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            condition = "d.name LIKE ? ESCAPE '\\'"
            value = f"%{escaped}%"
        else:
            condition = "d.name = ? COLLATE NOCASE"
            value = name
        rows = self._ask(
            "SELECT f.path, f.id, d.name, d.kind, d.line, d.last, d.container, d.head "
            f"FROM definitions d JOIN files f ON f.id = d.file WHERE {condition} "
            "ORDER BY f.path, d.line LIMIT ?",
            (value, limit),
        )
        return [_read_found(row) for row in rows]

    def definitions_of(self, files: Iterable[int]) -> Iterator[Found]:
        """Yield the definitions of files, in the order of each."""
        for file in files:
            rows = self._ask(
                "SELECT f.path, f.id, d.name, d.kind, d.line, d.last, d.container, d.head "
                "FROM definitions d JOIN files f ON f.id = d.file WHERE f.id = ? ORDER BY d.line",
                (file,),
            )
            yield from map(_read_found, rows)

    def find_uses(self, name: str) -> list[tuple[str, list[int]]]:
        """Return the files that use a name, each with the lines."""
        rows = self._ask(
            "SELECT f.path, u.lines FROM uses u JOIN names n ON n.id = u.name "
            "JOIN files f ON f.id = u.file WHERE n.name = ? ORDER BY f.path",
            (name,),
        )
        return [(str(path), _unpack(bytes(lines))) for path, lines in rows]  # pyright: ignore[reportArgumentType]  a BLOB

    def links(self, most_files: int) -> list[tuple[int, int, str, int, int]]:
        """Return what links files: user, definer, name, bytes of uses, number of definers.

        A name that more than `most_files` files define says nothing and is left out.
        """
        rows = self._ask(
            "WITH defined AS (SELECT DISTINCT name, file FROM definitions), "
            "known AS (SELECT n.id, d.name, count(*) AS definers FROM defined d "
            "JOIN names n ON n.name = d.name GROUP BY n.id HAVING definers <= ?) "
            "SELECT u.file, d.file, k.name, length(u.lines), k.definers FROM known k "
            "JOIN defined d ON d.name = k.name JOIN uses u ON u.name = k.id",
            (most_files,),
        )
        return rows  # pyright: ignore[reportReturnType]  the columns of the question


def _read_found(row: tuple[object, ...]) -> Found:
    path, file, name, kind, line, last, container, head = row
    definition = Definition(
        str(name), str(kind), int(str(line)), int(str(last)), str(container), str(head)
    )
    return Found(str(path), definition, int(str(file)))


def _pack(lines: Sequence[int]) -> bytes:
    """Pack ascending numbers as differences, seven bits a byte, the lowest first."""
    packed = bytearray()
    before = 0
    for line in lines:
        rest = line - before
        before = line
        while rest > 0x7F:
            packed.append(rest & 0x7F | 0x80)
            rest >>= 7
        packed.append(rest)
    return bytes(packed)


def _unpack(packed: bytes) -> list[int]:
    lines: list[int] = []
    line = 0
    shift = 0
    for byte in packed:
        line += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            lines.append(line)
            shift = 0
    return lines
