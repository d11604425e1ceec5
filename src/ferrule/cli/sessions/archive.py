"""Archive sessions for `ferrule sessions archive`: choose them, choose the file, report."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import click

from ferrule.cli.new_files import check_named_file
from ferrule.cli.terminal import escape_invisible
from ferrule.runtime.assemble import open_journal_file
from ferrule.storage.export.archive import ArchiveReport, find_closed_sessions
from ferrule.storage.export.archive import archive_sessions as write_archive
from ferrule.storage.journal.sqlite import SqliteJournal

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def archive_sessions(
    named: Sequence[str], older_than: str | None, output: str | None, dry_run: bool
) -> int:
    """Move sessions to an archive. Return the exit code, 1 if a session could not be moved."""
    if bool(named) == bool(older_than):
        raise click.UsageError("name the sessions, or give --older-than")
    with open_journal_file() as journal:
        if older_than:
            before = int((time.time() - parse_duration(older_than)) * 1000)
            chosen = [info.session for info in find_closed_sessions(journal, before)]
        else:
            chosen = [journal.find(name).session for name in named]
        if dry_run:
            for session in chosen:
                click.echo(escape_invisible(session))
            click.echo(f"{len(chosen)} sessions would be archived", err=True)
            return 0
        if not chosen:
            click.echo("nothing to archive", err=True)
            return 0
        return _report(write_archive(journal, chosen, _choose_file(journal, output)))


def parse_duration(text: str) -> float:
    """Parse a duration such as `30d`, `12h` or `90s` into seconds.

    Raises:
        click.UsageError: It is not a duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if match is None:
        raise click.UsageError(
            f"`{escape_invisible(text)}` is not a duration; write 30d, 12h, 90m or 10s"
        )
    return float(match[1]) * _UNITS[match[2]]


def _choose_file(journal: SqliteJournal, output: str | None) -> Path:
    if output:
        check_named_file(output)
        return Path(output)
    folder = (journal.path or Path.cwd() / "journal.db").parent / "archives"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    file = folder / f"{stamp}.jsonl.gz"
    number = 2
    while file.exists():
        file = folder / f"{stamp}-{number}.jsonl.gz"
        number += 1
    return file


def _report(made: ArchiveReport) -> int:
    for session, why in made.kept.items():
        click.echo(escape_invisible(f"kept: {session}: {why}"), err=True)
    if made.sha256:
        size = f"{made.events} events of {len(made.sessions)} sessions"
        click.echo(escape_invisible(f"{made.file}: {size}, sha256 {made.sha256}"))
    return 1 if made.kept else 0
