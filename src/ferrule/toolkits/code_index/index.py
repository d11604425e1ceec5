"""The index of one workspace: made in the background, and compared with the files at each question.

A question first has the whole workspace compared with what is known: names, sizes and times of all
files, and the content of those that differ. So whatever changed a file (a tool, a command, a
person, a `git checkout`), the answer is about the files as they are. What is new is read through
the workspace of whoever asks, which is all the access to files that there is, and parsed by
another process at the lowest priority. A file that this workspace may not read, or that is gone or
ignored, is forgotten. All this is done by one thread of the index, which ends when nothing is left
to do: an index that nobody closes goes with its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.workspace import FileEntry, Workspace, check_text
from ferrule.toolkits.search.rows import SearchResult
from ferrule.toolkits.search.scope import Scope, find_entries
from ferrule.tools.forking import make_rlock, watch_forks

from .languages import find_language
from .parser_process import FileSymbols, parse_contents
from .ranking import MOST_DEFINERS
from .store import IndexedFile, IndexStore

MAX_FILES = 50_000
"""Most files of one workspace."""
MAX_FILE_SIZE = 1 << 20
"""Bytes of the largest file that is parsed: larger ones are data or made by programs."""
MAX_LINE = 20_000
"""Bytes of the longest line of a file that is parsed: it was made by a program."""
_BATCH_FILES = 200
_BATCH_BYTES = 1_500_000
_UNSURE_SECONDS = 2.0
"""A file that changed this shortly before it was read may have changed again at the same time."""
_BACKGROUND = 10
"""How far a first reading steps back behind other processes (nice)."""
_CLOSE_SECONDS = 5.0


@frozen
class Progress:
    """How far the index is. `waiting`: files that are still to be parsed, as far as is known.

    `problem` says why the last comparison ended early.
    """

    files: int
    waiting: int
    complete: bool
    problem: str = ""
    left_out: int = 0
    """Source files beyond `MAX_FILES`."""


_PARENTS_STORES: list[IndexStore] = []
"""In a forked child: tables of its parent, which are kept so that nothing closes them."""


class CodeIndex:
    """The index of one workspace. Starts nothing before `start` or `refresh`. Thread-safe.

    Args:
        path: The file it is kept in; None keeps it in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._store: IndexStore | None = None
        self._changed = threading.Condition(make_rlock())
        watch_forks(self)
        self._thread: threading.Thread | None = None
        self._workspace: Workspace | None = None
        self._wanted = 0
        self._done = 0
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0
        self._left_out = 0
        self._problem = ""
        self._links: tuple[int, list[tuple[int, int, str, int, int]]] = (-1, [])

    def after_fork(self) -> None:
        """Have no thread in a forked child, and a connection of its own to the tables."""
        self._thread = None
        self._task = None
        self._loop = None
        if self._store is not None:
            _PARENTS_STORES.append(self._store)
            self._store = None

    def links(self) -> list[tuple[int, int, str, int, int]]:
        """Return what links files (`IndexStore.links`), kept until something changes. Blocks."""
        store = self.store
        generation = store.generation
        if self._links[0] != generation:
            self._links = (generation, store.links(MOST_DEFINERS))
        return self._links[1]

    @property
    def store(self) -> IndexStore:
        """The tables.

        Raises:
            FerruleError: Their file cannot be opened.
        """
        with self._changed:
            if self._store is None:
                self._store = IndexStore(self._path)
            return self._store

    def start(self, workspace: Workspace) -> int:
        """Have the index compared with the files, in the background. Returns a number for `wait`.

        Raises:
            FerruleError: The index cannot be opened.
        """
        _ = self.store
        with self._changed:
            if self._closed:
                raise FerruleError("the code index is closed", code="index")
            self._workspace = workspace
            self._wanted += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="ferrule-index", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
            return self._wanted

    def wait(self, number: int, seconds: float) -> Progress:
        """Wait until what `start` began is done, or for `seconds`. Blocks."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._done < number and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            complete = self._done >= number and not self._problem
        return Progress(self.store.count(), self._waiting, complete, self._problem, self._left_out)

    def refresh(self, workspace: Workspace, seconds: float) -> Progress:
        """Compare the index with the files, for at most `seconds`. Blocks."""
        return self.wait(self.start(workspace), seconds)

    def close(self) -> None:
        """End what is under way, and close the file. Safe to call twice."""
        with self._changed:
            self._closed = True
            task = self._task
            loop = self._loop
            thread = self._thread
            self._changed.notify_all()
        if task is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # It may just have ended by itself.
                loop.call_soon_threadsafe(task.cancel)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_SECONDS)
        with self._changed:
            if self._store is not None and not (thread and thread.is_alive()):
                self._store.close()

    # The thread

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._wanted == self._done or self._closed:
                    self._thread = None
                    return
                number = self._wanted
                workspace = self._workspace
            assert workspace is not None
            problem = self._run(workspace)
            with self._changed:
                self._problem = problem
                self._done = number
                self._changed.notify_all()

    def _run(self, workspace: Workspace) -> str:
        """Compare once. Return why that ended early; empty if it did not."""
        try:
            asyncio.run(self._update_in_loop(workspace))
        except asyncio.CancelledError:
            return "it was ended"
        except (ToolFailed, FerruleError, OSError) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001  boundary: who asks is told, and the thread goes on
            return f"{type(error).__name__}: {error}"
        return ""

    async def _update_in_loop(self, workspace: Workspace) -> None:
        with self._changed:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
        try:
            await self._update(workspace)
        finally:
            with self._changed:
                self._task = None
                self._loop = None

    async def _update(self, workspace: Workspace) -> None:
        store = self.store
        known = store.files()
        seen: set[str] = set()
        changed: list[FileEntry] = []
        for entry in self._list_sources(workspace):
            seen.add(entry.path)
            old = known.get(entry.path)
            if old is None or _may_differ(old, entry):
                changed.append(entry)
        gone = [path for path in known if path not in seen]
        if gone:
            store.remove(gone)
        self._waiting = len(changed)
        # Somebody waits for the few files that have changed since the last question.
        nice = _BACKGROUND if len(changed) > _BATCH_FILES else 0
        for batch in self._read_batches(workspace, changed, known):
            await self._parse(workspace, batch, nice)

    def _list_sources(self, workspace: Workspace) -> Iterator[FileEntry]:
        count = 0
        self._left_out = 0
        for entry in find_entries(workspace, Scope("."), SearchResult(), lambda: self._closed):
            if find_language(entry.path) is None:
                continue
            count += 1
            if count > MAX_FILES:
                self._left_out += 1
                continue
            yield entry

    def _read_batches(
        self, workspace: Workspace, entries: Iterable[FileEntry], known: dict[str, IndexedFile]
    ) -> Iterator[list[tuple[IndexedFile, bytes]]]:
        """Yield what is new, with its content, as much at a time as is parsed at once."""
        batch: list[tuple[IndexedFile, bytes]] = []
        same: list[IndexedFile] = []
        size = 0
        for entry in entries:
            if self._closed:
                return
            old = known.get(entry.path)
            read = _read(workspace, entry, old)
            if read is None:
                if old is not None:
                    self.store.remove([entry.path])
                self._waiting -= 1
                continue
            file, content = read
            if old is not None and old.digest == file.digest:
                same.append(file)
                self._waiting -= 1
                continue
            batch.append((file, content))
            size += len(content)
            if len(batch) >= _BATCH_FILES or size >= _BATCH_BYTES:
                yield batch
                batch = []
                size = 0
        if same:
            self.store.touch(same)
        if batch:
            yield batch

    async def _parse(
        self, workspace: Workspace, batch: list[tuple[IndexedFile, bytes]], nice: int
    ) -> None:
        parsed = [pair for pair in batch if not pair[0].problem]
        directory = workspace.open_descriptor("")
        try:
            symbols = await parse_contents(
                [(file.language, content) for file, content in parsed],
                directory=directory,
                nice=nice,
            )
        finally:
            os.close(directory)
        found = dict(zip((file.path for file, _ in parsed), symbols, strict=True))
        self.store.put(
            (file, found.get(file.path) or FileSymbols(problem=file.problem)) for file, _ in batch
        )
        self._waiting -= len(batch)


def _may_differ(old: IndexedFile, entry: FileEntry) -> bool:
    if old.size != entry.size or old.modified != entry.modified:
        return True
    return old.modified > old.checked - _UNSURE_SECONDS


def _read(
    workspace: Workspace, entry: FileEntry, old: IndexedFile | None
) -> tuple[IndexedFile, bytes] | None:
    """Read a file. None if it cannot be read, which its name alone would not have told."""
    language = find_language(entry.path)
    assert language is not None
    checked = time.time()
    problem = ""
    content = b""
    if entry.size > MAX_FILE_SIZE:
        problem = f"more than {MAX_FILE_SIZE} bytes"
    else:
        try:
            content = workspace.read(entry.path, limit=MAX_FILE_SIZE)
            check_text(content, entry.path)
        except ToolFailed:
            return None
        if max(map(len, content.split(b"\n"))) > MAX_LINE:
            problem = f"a line has more than {MAX_LINE} bytes"
    digest = hashlib.sha256(content or repr((entry.size, entry.modified)).encode()).digest()
    number = old.id if old is not None else 0
    return (
        IndexedFile(
            number,
            entry.path,
            entry.size,
            entry.modified,
            checked,
            digest,
            language.name,
            problem,
        ),
        content,
    )
