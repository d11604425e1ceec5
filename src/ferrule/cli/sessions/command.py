"""`ferrule sessions`: list, show, continue, export and repair the sessions of the journal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ferrule.cli.confirmation import has_terminal
from ferrule.cli.new_files import check_named_file
from ferrule.cli.rows import print_row
from ferrule.cli.terminal import encode_json as encode_json
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options, yes_to_option

from .audit import verify
from .compact import compact, restore
from .recordings import bundle, import_sessions, replay, to_case
from .rewind import fork, rewind

with lazy_imports():
    from ferrule.cli.run import one_shot
    from ferrule.models import registry
    from ferrule.permissions import redaction
    from ferrule.runtime import assemble
    from ferrule.storage.export import jsonl, transcripts
    from ferrule.storage.export import redaction as redacted_records
    from ferrule.storage.journal import salvage as salvaging
    from ferrule.storage.journal import session_search
    from ferrule.storage.settings import settings as person_settings

    from . import archive as archives

if TYPE_CHECKING:
    from ferrule.core.events import JournalRecord


@click.group(cls=CommandGroup)
def sessions() -> None:
    """List, show, resume, rewind, compact, replay, export, verify and archive sessions.

    \b
    Examples:
      ferrule sessions list -n 5
      ferrule sessions list --search "average of prices"
      ferrule sessions show 4f2a
      ferrule sessions export 4f2a > session.jsonl
    """  # noqa: D301  click reads the mark


# `verify` is the same command as `ferrule audit verify`.
for _command in (replay, bundle, to_case, import_sessions, fork, rewind, compact, restore, verify):
    sessions.add_command(_command)


@sessions.command("list")
@click.option(
    "-n",
    "--number",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="How many, newest first.",
)
@click.option("--search", "words", metavar="WORDS", help="Only those with all these words.")
@click.option("--here", is_flag=True, help="Only those of this folder.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_sessions(number: int, words: str | None, here: bool, as_json: bool) -> None:
    """List the sessions: id, time, state, runs, model, first message.

    The folder follows where it is another one than this. --search looks at messages and answers,
    and at folder, model and id.
    """
    folder = os.path.realpath(os.curdir)
    with assemble.open_journal() as store:
        found = session_search.search_sessions(store, words or "")
        kept = (row for row in found if not here or row.workspace == folder)
        rows = list(islice(kept, number))
    if as_json:
        click.echo(encode_json([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.last / 1000))
        question = " ".join(row.question.split())[:60]
        runs = "run " if row.runs == 1 else "runs"
        head = f"{row.session[:12]}  {when}  {row.state:9}  {row.runs:3} {runs}  {row.model:24}  "
        place = f"  ({row.workspace})" if row.workspace not in ("", folder) else ""
        print_row(head, f"{question}{place}")


@sessions.command()
@click.argument("session")
def show(session: str) -> None:
    """Show a whole session as text: messages, calls with results, answers."""
    with assemble.open_journal() as store:
        for part in transcripts.write_transcript(store.records(store.find(session).session)):
            click.echo(part, nl=False)


@sessions.command()
@click.argument("session")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonl", "markdown", "spmd"]),
    default="markdown",
    show_default=True,
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    help="File to write (default: standard output).",
)
@click.option(
    "--redact", is_flag=True, help="Remove secrets; JSON lines can then not be imported again."
)
def export(session: str, kind: str, output: str | None, redact: bool) -> None:
    """Write a session as JSON lines, Markdown or a screenplay (.spmd)."""
    with assemble.open_journal() as store:
        records = store.records(store.find(session).session)
        parts = _write_export(kind, _redact(records) if redact else records)
        if output is None:
            for part in parts:
                click.echo(part, nl=False)
            return
        check_named_file(output)
        with click.open_file(output, "w", encoding="utf-8", atomic=True) as file:
            file.writelines(parts)
    click.echo(f"wrote {output}", err=True)


def _write_export(kind: str, records: Iterator[JournalRecord]) -> Iterator[str]:
    if kind == "spmd":
        return transcripts.write_screenplay(records, registry.list_local_providers())
    return jsonl.export_jsonl(records) if kind == "jsonl" else transcripts.write_markdown(records)


def _redact(records: Iterator[JournalRecord]) -> Iterator[JournalRecord]:
    settings = person_settings.load_settings()
    redactor = redaction.Redactor.for_environment(
        os.environ, settings["redaction.keys"], settings["redaction.patterns"]
    )
    return redacted_records.redact_records(records, redactor)


@sessions.command()
@click.argument("session")
@click.argument("prompt", nargs=-1)
@yes_to_option
@common_options
def resume(session: str, prompt: tuple[str, ...], **options: Any) -> int:
    """Finish what a session left open (a crash, a limit), then continue with PROMPT, if given.

    Finished calls do not run again. For a call that was running when the process died, the tool's
    probe finds the outcome, or you are asked, or the model is told that it is unknown.
    """
    import asyncio

    return asyncio.run(
        one_shot.run_once(" ".join(prompt), options, session_id=session, finish=True)
    )


@sessions.command()
@click.argument("session", nargs=-1)
@click.option(
    "--older-than",
    metavar="TIME",
    help="All closed sessions that were not used for this long, such as 30d.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="File of the archive (default: a new one beside the journal).",
)
@click.option("--dry-run", is_flag=True, help="Only list the sessions.")
def archive(
    session: tuple[str, ...], older_than: str | None, output: str | None, dry_run: bool
) -> int:
    """Move sessions into a compressed file, which can be verified and imported again.

    They are removed from the journal only after the file was written and checked, and the journal
    records that.
    """
    return archives.archive_sessions(session, older_than, output, dry_run)


@sessions.command()
@click.option("--yes", is_flag=True, help="Do it without asking.")
def salvage(yes: bool) -> int:
    """Copy the intact sessions of a damaged journal to a new one, and keep the damaged file."""
    path = assemble.open_journal_file().path
    if path is None or not path.exists():
        click.echo(f"there is no journal at {path}", err=True)
        return 1
    if not yes and not has_terminal():
        click.echo(
            "nothing was done: this needs a confirmation\nhint: run the command again with --yes",
            err=True,
        )
        return 7
    if not yes and not click.confirm(f"salvage {path}?", err=True):
        click.echo("nothing was done", err=True)
        return 1
    saved = salvaging.salvage(path)
    for loss in saved.lost:
        click.echo(f"lost: {loss}", err=True)
    kept = f"{sum(saved.kept.values())} events of {len(saved.kept)} sessions kept"
    click.echo(f"{kept}; the old file is {saved.aside}")
    return 0
