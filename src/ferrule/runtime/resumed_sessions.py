"""What is asked of a session before it is resumed, without loading an agent."""

from __future__ import annotations

from ferrule.core.errors import FerruleError, JournalError
from ferrule.storage.locations import create_journal
from ferrule.storage.settings.settings import load_settings


def find_session_model(session: str) -> str:
    """Return the name of the model that a session used last.

    Args:
        session: Its id, or the beginning of it.
    """
    with create_journal(load_settings().journal) as store:
        return store.find(session).model


def refuse_session_in_use(session: str) -> None:
    """Raise the error of a session that another process has, before the rest is loaded.

    Any other problem of the session is reported where it is resumed.

    Args:
        session: Its id, or the beginning of it.

    Raises:
        JournalError: Another process has the session (`journal_leased`).
    """
    try:
        with create_journal(load_settings().journal) as store:
            found = store.find(session).session
            store.lease(found)
            store.release(found)
    except FerruleError as error:
        if isinstance(error, JournalError) and error.code == "journal_leased":
            raise
