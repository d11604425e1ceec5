"""Search in sessions: by their messages, folder, model and id."""

from __future__ import annotations

from collections.abc import Iterator

from ferrule.core.events import ModelAnswered, RunStarted
from ferrule.storage.audit.verification import ARCHIVE_SESSION_PREFIX

from .protocols import Journal
from .sessions import SessionInfo

FIRST_PAGE = 64


def search_sessions(journal: Journal, words: str) -> Iterator[SessionInfo]:
    """Yield the sessions that have all of these words, the one used last first.

    Messages of people and answers of models are searched, not calls and their results. Case does
    not matter, and no words match every session. Sessions that record archiving are left out.

    Raises:
        JournalError: The journal cannot be read.
    """
    wanted = words.casefold().split()
    for info in _list_newest_first(journal):
        about = f"{info.session} {info.workspace} {info.model}".casefold()
        missing = [word for word in wanted if word not in about]
        if not missing:
            yield info
            continue
        messages = _read_messages(journal, info).casefold()
        if all(word in messages for word in missing):
            yield info


def _list_newest_first(journal: Journal) -> Iterator[SessionInfo]:
    # In growing pages: most readers want a few of many thousands.
    limit = FIRST_PAGE
    shown = 0
    while True:
        page = journal.sessions(limit=limit)
        for info in page[shown:]:
            if not info.session.startswith(ARCHIVE_SESSION_PREFIX):
                yield info
        if len(page) < limit:
            return
        shown = limit
        limit *= 4


def _read_messages(journal: Journal, info: SessionInfo) -> str:
    said: list[str] = []
    for record in journal.records(info.session):
        if isinstance(record.event, RunStarted | ModelAnswered):
            said.append(record.event.text)
    return "\n".join(said)
