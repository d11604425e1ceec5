"""Search in the messages of sessions: what people and models said, without secrets.

The texts come from the timelines that pages show, so that nobody can find by searching what no page
shows them. They are kept in memory, by session, until the session goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from ferrule.storage.journal.sessions import SessionInfo

from .entries import Entry, Message

MAX_CHARACTERS = 200_000
"""Characters of a session that are searched: those of its last messages."""
MAX_KEPT = 40_000_000
"""Characters of all sessions that are kept."""


class MessageSearch:
    """Finds sessions by what was said in them.

    Args:
        read_entries: Returns the entries of a session's page.
    """

    def __init__(self, read_entries: Callable[[SessionInfo], Iterable[Entry]]) -> None:
        self._read_entries = read_entries
        self._texts: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._kept = 0

    def matches(self, info: SessionInfo, words: Iterable[str]) -> bool:
        """Return whether all words are in a session's messages. Reads it if it went on."""
        text = self._find_text(info)
        return all(word in text for word in words)

    def _find_text(self, info: SessionInfo) -> str:
        known = self._texts.get(info.session)
        if known is not None and known[0] == info.events:
            self._texts.move_to_end(info.session)
            return known[1]
        said = [entry.text for entry in self._read_entries(info) if isinstance(entry, Message)]
        text = "\n".join(said)[-MAX_CHARACTERS:].casefold()
        self._kept += len(text) - (len(known[1]) if known is not None else 0)
        self._texts[info.session] = (info.events, text)
        while self._kept > MAX_KEPT:
            _, (_, dropped) = self._texts.popitem(last=False)
            self._kept -= len(dropped)
        return text
