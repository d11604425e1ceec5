"""Where journals and artifacts are kept: a path, or the URL of a store shared by many machines.

    journal:    ~/journal.db      postgresql://ferrule:${DB_PASSWORD}@db.example.com/ferrule
    artifacts:  ~/artifacts       s3://bucket/prefix   gs://…   az://…   postgresql://…

Using files loads none of the libraries that the other stores need. See `store_urls` for `${…}`.
"""

from __future__ import annotations

from pathlib import Path

from ferrule.core.errors import ConfigError

from . import journal, paths
from .artifacts.files import FileArtifactStore
from .artifacts.store import ArtifactStore
from .journal.sqlite import SqliteJournal
from .store_urls import expand_variables, is_url, redact_url

_POSTGRES_SCHEMES = ("postgresql://", "postgres://")


def create_journal(
    where: str | Path | None, *, durability: str = "process"
) -> SqliteJournal | journal.PostgresJournal:
    """Return the journal at a path or URL; None is the user's own. Opens nothing yet.

    Raises:
        ConfigError: No journal can be kept there, or a variable in the URL is not set.
    """
    if not is_url(where):
        return SqliteJournal(where or paths.default_journal(), durability=durability)
    url = str(where)
    if not url.startswith(_POSTGRES_SCHEMES):
        raise ConfigError(
            f"a journal cannot be kept in `{redact_url(url)}`",
            hint="use a file, or `postgresql://user@host/database`",
        )
    from .journal.postgres import PostgresJournal

    return PostgresJournal(expand_variables(url))


def create_artifact_store(
    where: str | Path | None, *, max_bytes: int | None = 1 << 30, days: float | None = 30.0
) -> ArtifactStore:
    """Return the artifact store at a path or URL; None is the user's own. Opens nothing yet.

    Raises:
        ConfigError: No store can be kept there, or a variable in the URL is not set.
    """
    if not is_url(where):
        return FileArtifactStore(where, max_bytes=max_bytes, days=days)
    url = expand_variables(str(where))
    if url.startswith(_POSTGRES_SCHEMES):
        from .artifacts.postgres import PostgresArtifactStore

        return PostgresArtifactStore(url, max_bytes=max_bytes, days=days)
    from .artifacts.objects import ObjectArtifactStore

    return ObjectArtifactStore(url, max_bytes=max_bytes, days=days)
