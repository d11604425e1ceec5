"""`ferrule sessions archive`: which sessions, into which file, and what is said of it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import click

from ferrule.cli.terminal import visible
from ferrule.runtime.assemble import journal_file
from ferrule.storage.export.archive import Archive, archive, closed_before
from ferrule.storage.journal.sqlite import SqliteJournal

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def move(named: Sequence[str], older_than: str | None, output: str | None, dry_run: bool) -> int:
    """Archive; the exit code: 1 if a session had to stay."""
    if bool(named) == bool(older_than):
        raise click.UsageError("name sessions, or say --older-than")
    with journal_file() as store:
        if older_than:
            before = int((time.time() - seconds(older_than)) * 1000)
            chosen = [info.session for info in closed_before(store, before)]
        else:
            chosen = [store.find(name).session for name in named]
        if dry_run or not chosen:
            for session in chosen:
                click.echo(visible(session))
            click.echo(
                f"{len(chosen)} sessions would be archived" if dry_run else "nothing to archive",
                err=True,
            )
            return 0
        return _said(archive(store, chosen, _file(store, output)))


def seconds(text: str) -> float:
    """A length of time as people write it: `30d`, `12h`, `90s`. Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found is None:
        raise click.UsageError(
            f"`{visible(text)}` is no length of time; write 30d, 12h, 90m or 10s"
        )
    return float(found[1]) * _UNITS[found[2]]


def _file(store: SqliteJournal, output: str | None) -> Path:
    if output:
        return Path(output)
    folder = (store.path or Path.cwd() / "journal.db").parent / "archives"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    made, number = folder / f"{stamp}.jsonl.gz", 2
    while made.exists():
        made, number = folder / f"{stamp}-{number}.jsonl.gz", number + 1
    return made


def _said(done: Archive) -> int:
    for session, why in done.kept.items():
        click.echo(visible(f"kept: {session}: {why}"), err=True)
    if done.sha256:
        click.echo(
            visible(
                f"{done.file}: {done.events} events of {len(done.sessions)} sessions, sha256 "
                f"{done.sha256}"
            )
        )
    return 1 if done.kept else 0
