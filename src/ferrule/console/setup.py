"""Build a console: one journal, one event bus, the server's own assembly, and the session pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrule.engine.event_bus.bus import Bus
from ferrule.runtime.assemble import Assembly, assemble, current_user
from ferrule.runtime.hot_reload import HotReloader
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal

from .assemblies import Assemblies, SessionSetup
from .open_sessions import OpenSessions
from .state import Console
from .timeline_cache import TimelineCache

AssemblyBuilder = Callable[[SessionSetup, Journal | None, Bus | None], Assembly]


def build_console(
    options: dict[str, Any], notice: Callable[[str], None], *, owner: str = ""
) -> Console:
    """Build a console over the settings with these options (see `runtime.assemble`).

    Close it with `close`.

    Raises:
        ConfigError: an option or a setting cannot be used.
    """

    def make(setup: SessionSetup, journal: Journal | None, bus: Bus | None) -> Assembly:
        chosen = {"model": setup.model, "mode": setup.mode, "workspace": setup.workspace}
        given = {**options, **{name: value for name, value in chosen.items() if value}}
        made = assemble(given, notice=notice, journal=journal, bus=bus, interruptible=True)
        made.reloader = HotReloader(made, given, interruptible=True)
        return made

    return build_console_over(make, owner=owner or current_user())


def build_console_over(make: AssemblyBuilder, *, owner: str) -> Console:
    """Build a console over the assemblies that `make` builds. The first one brings the journal."""
    server = make(SessionSetup(), None, None)
    journal = server.agent.journal
    # The bus reads earlier events from the journal of the first assembly.
    bus = server.agent.bus = server.agent.bus or Bus(journal=journal)
    # Pages read through a connection of their own: a long list must not delay a run that writes.
    reading = journal
    if isinstance(journal, SqliteJournal) and journal.path is not None:
        reading = SqliteJournal(journal.path)
    benches = Assemblies(lambda setup: make(setup, journal, bus), server)
    desk = OpenSessions(benches, journal, owner)
    return Console(server, reading, bus, desk, TimelineCache(bus, reading), owner)


async def close_console(console: Console) -> None:
    """Settle and journal every run, end it, and release everything the console holds."""
    await console.open_sessions.close()
    console.close_reading()
    console.bus.close()
    await console.assembly.close(strict=False)
