"""Build a console: one journal, one event bus, the server's own assembly, and the session pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrule.engine.event_bus.bus import Bus
from ferrule.runtime.assemble import Assembly, assemble, person
from ferrule.runtime.hot_reload import Reloading
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal

from .assemblies import Benches, Setup
from .sessions import Desk
from .state import Console
from .timeline_cache import Views

Make = Callable[[Setup, Journal | None, Bus | None], Assembly]


def console_of(
    options: dict[str, Any], notice: Callable[[str], None], *, owner: str = ""
) -> Console:
    """Build a console over the settings with these options (see `runtime.assemble`).

    Close it with `close`.

    Raises:
        ConfigError: an option or a setting cannot be used.
    """

    def make(setup: Setup, journal: Journal | None, bus: Bus | None) -> Assembly:
        chosen = {"model": setup.model, "mode": setup.mode, "workspace": setup.workspace}
        given = {**options, **{name: value for name, value in chosen.items() if value}}
        made = assemble(given, notice=notice, journal=journal, bus=bus, interruptible=True)
        made.reloading = Reloading(made, given, interruptible=True)
        return made

    return console_with(make, owner=owner or person())


def console_with(make: Make, *, owner: str) -> Console:
    """Build a console over the assemblies that `make` builds. The first one brings the journal."""
    server = make(Setup(), None, None)
    journal = server.agent.journal
    # The bus reads earlier events from the journal of the first assembly.
    bus = server.agent.bus = Bus(journal=journal)
    # Pages read through a connection of their own: a long list must not delay a run that writes.
    reading = journal
    if isinstance(journal, SqliteJournal) and journal.path is not None:
        reading = SqliteJournal(journal.path)
    benches = Benches(lambda setup: make(setup, journal, bus), server)
    desk = Desk(benches, journal, owner)
    return Console(server, reading, bus, desk, Views(bus, reading), owner)


async def close(console: Console) -> None:
    """Settle and journal every run, end it, and release everything the console holds."""
    await console.desk.close()
    console.views.close()
    console.bus.close()
    if console.journal is not console.desk.journal:
        console.journal.close()
    await console.assembly.close(strict=False)
