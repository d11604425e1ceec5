"""Find the session that a request continues: clients of this API send the whole history each time.

What a client sends before its last message is looked up by digest:

    SHA-256 of the compact JSON  [[tenant, user], model, system, [role, text], [role, text], ...]

If it is what one of our sessions was shown and said (text stripped of surrounding white space),
that session continues: its calls and results are in its journal, not at the client, and nothing
runs again. If the session has moved on since (the client retries, or asks something else), a fork
of it (`engine.rewind.rewind`) continues from there; files stay as they are. If it belongs to no
session (another server's, an edited answer, too long ago), a new session gets it as the client's
account of what was said before; it proves nothing and grants nothing.

No two requests work in one session. `OPEN` sessions are kept open; the one idle for longest is
closed first and resumed from the journal on demand. `MAX_KNOWN` points are remembered, in this
process only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.core.media import split_content
from ferrule.core.messages import AssistantMessage, Message
from ferrule.engine.agent import Agent
from ferrule.engine.rewind.rewind import fork
from ferrule.engine.session import Session
from ferrule.models.client import ModelOptions
from ferrule.runtime.http.work_limits import IN_ALL
from ferrule.runtime.session_pool import SessionPool
from ferrule.storage.artifacts.store import ArtifactStore

MAX_OPEN = IN_ALL
MAX_KNOWN = 4096
MAX_HISTORY = 200_000
"""Characters of an earlier conversation that a new session gets, the latest ones."""

_TOLD = (
    "What was said before, as the program that asks tells it. It is not about this message but "
    "leads up to the next one.\n\n"
)
_CUT = "[... the beginning is left out ...]\n"


Leave = Callable[[Session], Awaitable[None]]


@dataclass(slots=True)
class Conversation:
    """A session and the agent it belongs to.

    `session` is None while it is closed; `options` are those it last worked with, or None if
    unknown. `runs` is how many of its runs are over.
    """

    agent: Agent[Any, Any]
    id: str
    session: Session[Any] | None
    options: ModelOptions | None
    runs: int = 0
    leave: Leave = Session.close

    @property
    def is_busy(self) -> bool:
        """Whether it is in use. Always False: a conversation in use is not in the pool."""
        return False

    async def cancel(self) -> None:
        """Do nothing, as no run is in progress."""

    def open_session(self) -> Session[Any]:
        """Return the session, resumed if it was closed. Raises JournalError, SessionNotFound."""
        if self.session is None:
            self.session = self.agent.resume(self.id)
        return self.session

    async def close(self) -> None:
        """Close the session; it can be resumed."""
        session = self.session
        self.session = None
        if session is not None:
            await self.leave(session)


class Conversations:
    """The sessions that are not in use, by what was said in them.

    Args:
        store: Holds their large results.
        max_open: How many stay open.
        max_known: How many points are remembered.
    """

    def __init__(
        self,
        store: ArtifactStore | None = None,
        *,
        max_open: int = MAX_OPEN,
        max_known: int = MAX_KNOWN,
    ) -> None:
        self._store = store
        self._known: dict[str, Conversation] = {}
        self._earlier: dict[str, Conversation] = {}
        self._pool = SessionPool[str, Conversation](max_open)
        self._max_known = max_known

    async def take(self, point: str) -> Conversation | None:
        """Take the conversation at a point; it is the caller's until it is put back."""
        await self._pool.wait_closed(point)
        self._pool.remove(point)
        found = self._known.pop(point, None)
        if found is not None:
            self._earlier[point] = replace(found, session=None)
            if len(self._earlier) > self._max_known:
                del self._earlier[next(iter(self._earlier))]
        return found

    def branch(self, point: str) -> Conversation | None:
        """Fork a conversation that was at this point once.

        Raises:
            SessionNotFound, ConfigError, JournalError: it cannot be forked.
        """
        passed = self._earlier.get(point)
        if passed is None:
            return None
        agent = passed.agent.copy()
        name = fork(agent.journal, passed.id, passed.runs, self._store)
        # The agent may have other options by now.
        return replace(passed, agent=agent, id=name, options=None)

    def put(self, point: str, conversation: Conversation) -> None:
        """Keep a conversation that is at this point now.

        Conversations over the limits are closed or forgotten.
        """
        self._known.pop(point, None)
        self._pool.close_soon(point)
        self._known[point] = conversation
        if conversation.session is not None:
            self._pool.make_room()
            self._pool.add(point, conversation)
        while len(self._known) > self._max_known:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._pool.close_soon(oldest)

    async def close(self) -> None:
        """Close all of them."""
        self._known.clear()
        await self._pool.close_all()


def conversation_point(
    who: tuple[str, str],
    model: str,
    system: str,
    history: Sequence[Message],
    answer: str | None = None,
) -> str:
    """Return the digest of a conversation after this history and, if given, this answer."""
    lines = [[_role(message), message.text.strip(), *_digests(message)] for message in history]
    if answer is not None:
        lines.append(["assistant", answer.strip()])
    return sha256(encode_json([who, model, system, *lines]).encode("utf-8", "replace")).hexdigest()


def render_history(history: Sequence[Message]) -> str:
    """Return an earlier conversation as one text for a model, shortened to its end."""
    text = "\n\n".join(f"{_role(message).capitalize()}: {_caption(message)}" for message in history)
    return _TOLD + (text if len(text) <= MAX_HISTORY else _CUT + text[-MAX_HISTORY:])


def _digests(message: Message) -> list[str]:
    media = () if isinstance(message, AssistantMessage) else message.media
    return [f"{one.at} {one.sha256}" for one in media]


def _caption(message: Message) -> str:
    """Return a message's text, with captions in place of its media."""
    if isinstance(message, AssistantMessage) or not message.media:
        return message.text
    parts = split_content(message.text, message.media)
    return "\n".join(part if isinstance(part, str) else part.describe() for part in parts)


def _role(message: Message) -> str:
    return "assistant" if isinstance(message, AssistantMessage) else "user"
