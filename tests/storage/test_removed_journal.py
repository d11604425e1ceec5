"""A journal whose file goes away while it is in use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule import JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.journal.sqlite import SqliteJournal

WHO = Identity("t", "u", "s", "r")
EVENT = Noticed("topic", "text")


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def replace(path: Path) -> None:
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").rename(path)


def append(journal: SqliteJournal) -> None:
    journal.append("s", "r", [EVENT], identity=WHO)


def append_batch(journal: SqliteJournal) -> None:
    journal.append_batches([(WHO, [EVENT])])


@pytest.mark.parametrize("write", [append, append_batch], ids=lambda one: one.__name__)
@pytest.mark.parametrize("remove", [delete, move, replace], ids=lambda one: one.__name__)
def test_the_next_write_says_that_the_file_is_gone(
    remove: Callable[[Path], None], write: Callable[[SqliteJournal], None], tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        write(journal)
        remove(path)
        with pytest.raises(JournalError) as caught:
            write(journal)
    assert caught.value.code == "journal_removed"
    assert str(path) in caught.value.detail


def test_a_file_that_is_put_back_is_written_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        append(journal)
        move(path)
        with pytest.raises(JournalError):
            append(journal)
        path.with_suffix(".old").rename(path)
        append(journal)
        assert len(list(journal.records("s"))) == 2
        journal.verify("s")


def test_a_journal_in_memory_has_no_file_to_lose() -> None:
    with SqliteJournal(":memory:") as journal:
        append(journal)
        append(journal)
        assert len(list(journal.records("s"))) == 2
