"""Where journals and artifacts are kept, as people write it: a file or folder, or the address of a
store for many machines.

    journal:    ~/journal.db      postgresql://ferrule:${DB_PASSWORD}@db.example.com/ferrule
    artifacts:  ~/artifacts       s3://bucket/prefix   gs://…   az://…   postgresql://…

What a file needs loads nothing of what the others need. See `addresses` for `${…}`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.core.errors import ConfigError

from . import paths
from .artifacts.files import FileArtifacts
from .journal.sqlite import SqliteJournal
from .store_urls import filled, is_address, shown

if TYPE_CHECKING:
    from .artifacts.store import ArtifactStore
    from .journal.postgres import PostgresJournal

_DATABASE = ("postgresql://", "postgres://")


def journal_at(
    where: str | Path | None, *, durability: str = "process"
) -> SqliteJournal | PostgresJournal:
    """The journal at a place; None is the person's own. Opens nothing yet. Raises ConfigError."""
    if not is_address(where):
        return SqliteJournal(where or paths.journal(), durability=durability)
    address = str(where)
    if not address.startswith(_DATABASE):
        raise ConfigError(
            f"a journal cannot be kept in `{shown(address)}`",
            hint="use a file, or `postgresql://user@host/database`",
        )
    from .journal.postgres import PostgresJournal

    return PostgresJournal(filled(address))


def artifacts_at(
    where: str | Path | None, *, max_bytes: int | None = 1 << 30, days: float | None = 30.0
) -> ArtifactStore:
    """The store of artifacts at a place; None is the person's own. Opens nothing yet. Raises
    ConfigError.
    """
    if not is_address(where):
        return FileArtifacts(where, max_bytes=max_bytes, days=days)
    address = filled(str(where))
    if address.startswith(_DATABASE):
        from .artifacts.postgres import PostgresArtifacts

        return PostgresArtifacts(address, max_bytes=max_bytes, days=days)
    from .artifacts.objects import ObjectArtifacts

    return ObjectArtifacts(address, max_bytes=max_bytes, days=days)
