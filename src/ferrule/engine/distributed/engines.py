"""Engines: what hands jobs to workers, and what is asked of one.

An engine hands a job to some worker *at least* once, until that worker's `do` has returned. Nothing
more is asked of it. That a job becomes exactly one run is the work of the journal and its leases
(`job_run`); outcomes, cancelling, order, bounds of tenants and schedules are kept by Ferrule for
every engine (`outcomes`, `runner`), and a job that may not begin yet is handed in again later
(`handing_in`). So an engine sees the id of a run and a few words to sort by, never what the job
says.

Distributions bring engines by the entry point `ferrule.engines`: a class that is called with
`EngineOptions`. Those that ship are in `ferrule.job_engines`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast, runtime_checkable
from urllib.parse import SplitResult, urlsplit

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen
from ferrule.permissions.entry_points import find_entry_points
from ferrule.permissions.provenance import CommandWritable
from ferrule.storage.journal.postgres_connection import choose_hint

DEFAULT_ENGINE = "procrastinate"
LOST_AFTER = 30.0
"""Seconds after which a worker that is not heard of has lost its jobs."""
ANSWER_SECONDS = 120.0
"""Seconds that an engine may take to answer what it is asked outside of `work`."""
RETRY_SECONDS = 5
"""Seconds after which what has failed is tried again."""


class EngineExtraMissing(FerruleError):
    """The library of an engine is not installed."""

    code = "extra_missing"


class EngineUnreachable(FerruleError):
    """The server of an engine does not answer, or refuses what it is asked for."""

    code = "engine_unreachable"


@contextmanager
def reach(
    whose: str,
    *errors: type[Exception],
    hint: str = "is the database up, and may this user create and change its tables?",
) -> Generator[None]:
    """Raise EngineUnreachable for these errors of a library, naming what was to be reached."""
    try:
        yield
    except errors as error:
        raise EngineUnreachable(
            f"{whose} cannot be reached: {find_reason(error)}",
            hint=choose_hint(error, hint),
            retryable=True,
        ) from error


def find_reason(error: BaseException) -> str:
    """Return the first line of what went wrong: libraries wrap the error that says it."""
    said = str(error.__cause__ or error).strip().splitlines()
    return said[0] if said else type(error).__name__


class GoOnElsewhere(Exception):
    """This worker leaves: another one is to go on with the job."""


Do = Callable[[str], Awaitable[None]]
"""Works the job with this run id to its end, or takes it back to hand it in again later.

If it raises (GoOnElsewhere), the job is to be handed out again. Cancelling it leaves the run as it
is.
"""


@frozen
class Ticket:
    """What an engine is told of a job.

    Attributes:
        run: The id of its run, and its key: handed in twice, it may be delivered twice.
        session: Jobs of one session are worked one after the other.
        tenant: Whose job it is.
        priority: 1 is first; 0 goes before all others.
        delay: Seconds until it may be handed out.
        due: The same as a time of the database's clock.
        as_of: When it was read from the table of outcomes. Engines ignore it.
    """

    run: str
    session: str
    tenant: str
    priority: int
    delay: float = 0
    due: datetime | None = None
    as_of: str = ""


@frozen
class EngineOptions:
    """What an engine is made with.

    Attributes:
        database: The PostgreSQL database of the journal, as libpq takes it.
        address: Where the server of the engine is, if it has one of its own.
        lost_after: Seconds after which a worker that is not heard of has lost its jobs.
        is_pooled: Whether a pooler shares the database's connections among programs: then nothing
            may be set, prepared or listened to on them.
    """

    database: str
    address: str = ""
    lost_after: float = LOST_AFTER
    is_pooled: bool = False

    def parse_url(self, default: str) -> SplitResult:
        """Return the address, which is to be a URL. Raises ConfigError."""
        with suppress(ValueError):
            url = urlsplit(self.address or default)
            if url.hostname and url.port:
                return url
        raise ConfigError(
            f"the address of an engine is `{self.address}`",
            hint=f"write a URL with scheme, host and port, such as `{default}`",
            code="engine_address",
        )


class Engine(Protocol):
    """Hands a job to some worker at least once, until `do` has returned.

    Each call but `work` gets an event loop of its own, in a thread of its own.
    """

    async def prepare(self) -> None:
        """Make what the engine needs. Raises EngineExtraMissing, EngineUnreachable."""
        ...

    async def submit(self, tickets: Sequence[Ticket]) -> None:
        """Take jobs, each to be handed out after its delay. Raises EngineUnreachable."""
        ...

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        """Call `do` for jobs, so many at once, until `stop`. Return when all calls have ended.

        It may raise: then it is called again, until `stop`.
        """
        ...

    def close(self) -> None:
        """Close what submitting opened, if anything stays open."""


@runtime_checkable
class WithdrawingEngine(Protocol):
    """An engine that can forget jobs, so that one which will never begin holds up nothing."""

    async def withdraw(self, tickets: Sequence[Ticket]) -> None:
        """Forget jobs that were cancelled before they began, if they are still there.

        Raises EngineUnreachable.
        """
        ...


T = TypeVar("T")


def ask_engine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what an engine answers, asked in an event loop and a thread of its own.

    Raises:
        FerruleError: It failed; EngineUnreachable with an error that its library lets through, or
            if it takes longer than `ANSWER_SECONDS`.
    """
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            answer.set_exception(error)

    # Nobody waits for this thread at the end of the program: its server may never answer.
    threading.Thread(target=work, name="ferrule-engine", daemon=True).start()
    try:
        return answer.result(ANSWER_SECONDS)
    except FerruleError:
        raise
    except Exception as error:
        is_silent = not answer.done()
        reason = f"no answer in {ANSWER_SECONDS:g} s" if is_silent else find_reason(error)
        raise EngineUnreachable(
            f"the engine failed: {type(error).__name__}: {reason}",
            hint=choose_hint(error, "see the log of its server"),
            retryable=True,
        ) from error


def open_engine(named: str | Engine, options: EngineOptions) -> Engine:
    """Return the engine called `NAME` or `NAME:ADDRESS`; one that is given is returned as it is.

    Raises:
        ConfigError: There is none of this name that may be used.
        EngineExtraMissing: Its library is not installed.
    """
    if not isinstance(named, str):
        return named
    name, _, address = named.partition(":")
    points, refused = find_entry_points("ferrule.engines", CommandWritable.from_current_folder())
    known = {point.name: point for point in points}
    if name not in known:
        hint = f"use one of {', '.join(sorted(known))}, or install the plugin that brings it"
        problem = f"no engine is called `{name}`"
        if refused:
            hint = "install it where commands cannot write, or start from another folder"
            problem += (
                f"; those of `{refused[0].name}` are not used, because commands can write "
                f"`{refused[0].path}`"
            )
        raise ConfigError(problem, hint=hint, code="engine_unknown")
    try:
        make = cast("Callable[[EngineOptions], Engine]", known[name].load())
    except ImportError as error:
        raise EngineExtraMissing(
            f"the engine `{name}` needs `{error.name}`",
            hint=f"pip install 'ferrule[{EXTRAS.get(name, name)}]'",
        ) from error
    return make(replace(options, address=address))


EXTRAS = {DEFAULT_ENGINE: "scale"}
"""Extras that are not called as their engine is."""
