"""The plugin `travelling_files`: a session that goes on elsewhere finds its files there."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, PartsInternals, Setup

MAX_BYTES = 256 << 20


@frozen
class TravellingFiles:
    """Keep the files of a session's workspace, and bring them where the session goes on.

        Agent(model, tools, workspace=folder, plugins=[TravellingFiles()], storage=storage)

    They are in the artifact store, which all machines must reach. Repositories of git go along, but
    for their hooks; folders that `.gitignore` names, and names that no tool may read, do not.

    Attributes:
        max_bytes: Bytes that the files of a workspace may have together.
    """

    name: ClassVar[str] = "travelling_files"
    max_bytes: int = MAX_BYTES

    def setup(self, setup: Setup) -> Parts:
        """Return what is added to each session."""
        from .session_files import SessionFiles

        extension = partial(SessionFiles, max_bytes=self.max_bytes)
        return Parts(internals=PartsInternals(extensions=(extension,)))
