"""Runs by a key: the finished result if there is one, the open run continued, a new one otherwise.

The key names a session in the agent's journal, and its lease makes one process work on it while
others wait for the result. An attempt that ended without an answer stays in the journal; the next
one is a session of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Protocol, TypeVar, Unpack

from ferrule.core.errors import ConfigError, JournalError, SessionNotFound
from ferrule.core.events import RunFinished, RunStarted
from ferrule.core.media import Content
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.forking import make_lock

from .message_history import History
from .run_inputs import UNSET
from .session import RunOptions, RunResult, Session

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)

MAX_ATTEMPTS = 100
"""Attempts of one key that are looked for in the journal."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two looks at whether another worker has finished."""

_at_work: set[tuple[int, str]] = set()
"""Journals and sessions that this process is working on: a lease is the process's."""
_lock = make_lock()


class KeyedAgent(Protocol[OutputT_co]):
    """What runs by a key need of an agent (`engine.agent.Agent`, which says what each is)."""

    tenant: str
    user: str

    @property
    def journal(self) -> Journal: ...

    def open_session(
        self, session_id: str, *, deps: Any = UNSET, history: History = ()
    ) -> Session[OutputT_co]: ...

    def resume(self, session_id: str, *, deps: Any = UNSET) -> Session[OutputT_co]: ...


def make_session_id(agent: KeyedAgent[Any], key: str, attempt: int = 1) -> str:
    """Return the session of a key, which is the same in every process."""
    text = "\0".join((agent.tenant, agent.user, key))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"key-{digest}-{attempt}"


async def run_keyed(
    agent: KeyedAgent[OutputT],
    key: str,
    text: Content,
    *,
    deps: Any = UNSET,
    history: History = (),
    **options: Unpack[RunOptions],
) -> RunResult[OutputT]:
    """Return the result of the run with this key. Work it, or what is left of it, if there is none.

    Args:
        agent: The agent. Keys belong to its user, in its journal.
        key: What tells the run from all others, such as the number of an order.
        text: The message. A key that was used for another text is an error; messages of several
            parts are not compared.
        deps: Dependencies, as in `Agent.run`.
        history: Messages before it, as in `Agent.run`.
        **options: As in `Agent.run`.

    Raises:
        ConfigError: The key is empty, or belongs to another message.
        FerruleError: As `Agent.run`; the next call with the key tries again.
    """
    if not key:
        raise ConfigError("the key of a run is empty", hint="give each run a key of its own")
    for attempt in count(1):
        if attempt > MAX_ATTEMPTS:
            raise ConfigError(
                f"the run with the key `{key}` has failed {MAX_ATTEMPTS} times",
                hint="use another key for a new run",
            )
        name = make_session_id(agent, key, attempt)
        async with _hold(agent.journal, name):
            finished = _find_finished(agent.journal, name, key, text)
            if finished is not None and finished.stop != "done":
                continue
            session = _open(agent, name, deps, history)
            try:
                if finished is not None:
                    return session.rebuild_result(finished)
                resumed = None
                if session.driver.machine.is_active:
                    resumed = await session.resume()
                # A session without a run was left before its first one.
                return resumed or await session.run(text, **options)
            finally:
                await session.close()
    raise AssertionError


def has_result(agent: KeyedAgent[Any], key: str, text: Content) -> bool:
    """Whether the run with this key has ended with a result."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        finished = _find_finished(agent.journal, make_session_id(agent, key, attempt), key, text)
        if finished is None or finished.stop == "done":
            return finished is not None
    return False


@asynccontextmanager
async def _hold(journal: Journal, name: str) -> AsyncGenerator[None]:
    """Wait until nobody else works on a session, in this process or another."""
    place = (id(journal), name)
    pause = _FIRST_PAUSE
    while not _take(journal, place):
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    try:
        yield
    finally:
        journal.release(name)
        with _lock:
            _at_work.discard(place)


def _take(journal: Journal, place: tuple[int, str]) -> bool:
    with _lock:
        if place in _at_work:
            return False
        try:
            journal.lease(place[1])
        except JournalError as error:
            if error.code != "journal_leased":
                raise
            return False
        _at_work.add(place)
        return True


def _open(agent: KeyedAgent[OutputT], name: str, deps: Any, history: History) -> Session[OutputT]:
    if _is_known(agent.journal, name):
        return agent.resume(name, deps=deps)
    return agent.open_session(name, deps=deps, history=history)


def _is_known(journal: Journal, name: str) -> bool:
    try:
        return journal.find(name).session == name
    except SessionNotFound:
        return False


def _find_finished(journal: Journal, name: str, key: str, text: Content) -> RunFinished | None:
    """Return how the run of a session ended; None if it is open or was never begun."""
    if not _is_known(journal, name):
        return None
    finished: RunFinished | None = None
    for record in journal.records(name):
        event = record.event
        if isinstance(event, RunStarted) and isinstance(text, str) and event.text != text:
            raise ConfigError(
                f"the key `{key}` belongs to a run with another message",
                code="key_used",
                hint="use a key of its own for each message",
            )
        if isinstance(event, RunFinished):
            finished = event
    return finished
