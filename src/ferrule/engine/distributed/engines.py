"""Engines: what hands jobs to workers, and what is asked of one.

An engine hands a job to some worker *at least* once, until that worker's `do` has returned. Nothing
more is asked of it. That a job becomes exactly one run is the work of the journal and its leases
(`job_run`); outcomes, cancelling, bounds of tenants and schedules are kept by Ferrule for every
engine (`outcomes`, `runner`). So an engine sees the id of a run and a few words to sort by, never
what the job says.

Distributions bring engines by the entry point `ferrule.engines`: a class that is called with
`EngineOptions`. Those that ship are in `ferrule.job_engines`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol, cast

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen
from ferrule.permissions.installed_code import find_entry_points
from ferrule.permissions.provenance import CommandWritable

DEFAULT_ENGINE = "procrastinate"
LOST_AFTER = 30.0
"""Seconds after which a worker that is not heard of has lost its jobs."""


class EngineExtraMissing(FerruleError):
    """The library of an engine is not installed."""

    code = "extra_missing"


class EngineUnreachable(FerruleError):
    """The server of an engine does not answer, or refuses what it is asked for."""

    code = "engine_unreachable"


class GoOnElsewhere(Exception):
    """This worker leaves: another one is to go on with the job, at once."""

    seconds = 0.0


class NotNow(Exception):
    """The job cannot begin yet: it is to be handed to a worker again, after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not within {seconds:g} s")
        self.seconds = seconds


Do = Callable[[str], Awaitable[None]]
"""Works the job with this run id to its end. Raises GoOnElsewhere or NotNow.

Any other error means what NotNow means. Cancelling it leaves the run as it is.
"""


@frozen
class Ticket:
    """What an engine is told of a job.

    Attributes:
        run: The id of its run, and its key: handed in twice, it may be delivered twice.
        session: Jobs of one session are worked one after the other.
        tenant: Whose job it is.
        priority: 1 is first; 0 goes before all others.
    """

    run: str
    session: str
    tenant: str
    priority: int


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


class Engine(Protocol):
    """Hands a job to some worker at least once, until `do` has returned.

    `keeps_order` says whether it works jobs of one session one after the other, in the order in
    which they were submitted; if not, Ferrule sends away those that come too early.
    """

    keeps_order: bool

    def prepare(self) -> None:
        """Make what the engine needs. Raises EngineExtraMissing, EngineUnreachable."""
        ...

    def submit(self, tickets: Sequence[Ticket], *, delay: float = 0) -> None:
        """Take jobs, to be handed out after `delay` seconds. Raises EngineUnreachable."""
        ...

    async def work(self, do: Do, *, concurrency: int, stop: asyncio.Event) -> None:
        """Call `do` for jobs, so many at once, until `stop`. Return when all calls have ended.

        It may raise: then it is called again, until `stop`.
        """
        ...

    def close(self) -> None:
        """Close what submitting opened."""
        ...


def open_engine(named: str, options: EngineOptions) -> Engine:
    """Return the engine called `NAME` or `NAME:ADDRESS`. Raises ConfigError, EngineExtraMissing."""
    name, _, address = named.partition(":")
    points, refused = find_entry_points("ferrule.engines", CommandWritable.from_current_folder())
    known = {point.name: point for point in points}
    if name not in known and refused:
        raise ConfigError(
            f"no engine is called `{name}`; those of `{refused[0].name}` are not used, because "
            f"commands can write `{refused[0].path}`",
            hint="install it where commands cannot write, or start from another folder",
            code="engine_unknown",
        )
    if name not in known:
        raise ConfigError(
            f"no engine is called `{name}`",
            hint=f"use one of {', '.join(sorted(known))}, or install the plugin that brings it",
            code="engine_unknown",
        )
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
