"""`ferrule sessions`: everything the journal remembers."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from .options import common


@click.group()
def sessions() -> None:
    """List, show, resume, export and verify sessions."""


@sessions.command("list")
@click.option("-n", "--number", default=20, show_default=True, help="How many, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_sessions(number: int, as_json: bool) -> None:
    """One line per session: id, when, state, model, first question."""
    from .assemble import journal

    rows = journal().sessions(limit=number)
    if as_json:
        from dataclasses import asdict

        click.echo(json.dumps([asdict(row) for row in rows], indent=2, default=str))
        return
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.last / 1000))
        question = " ".join(row.question.split())[:60]
        click.echo(
            f"{row.session[:12]}  {when}  {row.state:9}  {row.runs:3} runs  {row.model:24}  {question}"
        )


@sessions.command()
@click.argument("session")
def show(session: str) -> None:
    """The whole session as text: questions, calls with results, answers."""
    from ferrule.store.export import transcript

    from .assemble import journal

    store = journal()
    for part in transcript(store.records(store.find(session).session)):
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
def export(session: str, kind: str, output: str | None) -> None:
    """Write a session as JSON lines, Markdown or a screenplay (.spmd)."""
    from ferrule.store.export import markdown, screenplay
    from ferrule.store.jsonl import jsonl

    from .assemble import journal

    store = journal()
    records = store.records(store.find(session).session)
    writer = {"jsonl": jsonl, "markdown": markdown, "spmd": screenplay}[kind]
    if output is None:
        for part in writer(records):
            click.echo(part, nl=False)
        return
    with click.open_file(output, "w", encoding="utf-8") as file:
        for part in writer(records):
            file.write(part)
    click.echo(f"wrote {output}", err=True)


@sessions.command()
@click.argument("session")
def verify(session: str) -> None:
    """Check the chain of hashes of a session; names the first event that does not hold."""
    from .assemble import journal

    store = journal()
    info = store.find(session)
    store.verify(info.session)
    click.echo(f"{info.session}: {info.events} events verify")


@sessions.command()
@click.argument("session")
@click.argument("prompt", nargs=-1)
@click.option(
    "--yes-to", "yes_to", multiple=True, metavar="TOOL", help="Say yes to this tool where it would ask."
)
@common
def resume(session: str, prompt: tuple[str, ...], **options: Any) -> int:
    """Finish what a session left open (a crash, a limit), then go on with PROMPT if there is one.

    No finished call runs again; a call that was running when the process died is reported as unknown.
    """
    import asyncio

    from .running import resumed

    options["model"] = options.get("model") or _model_of(session)
    return asyncio.run(resumed(session, " ".join(prompt), options))


def _model_of(session: str) -> str:
    from .assemble import journal

    store = journal()
    try:
        return store.find(session).model
    finally:
        store.close()


@sessions.command()
@click.option("--yes", is_flag=True, help="Do it without asking.")
def salvage(yes: bool) -> None:
    """Copy what verifies out of a damaged journal; the damaged file is kept beside the new one."""
    from ferrule.store.salvage import salvage as rescue

    from .assemble import journal

    path = journal().path
    assert path is not None
    if not yes and not (sys.stdin.isatty() and click.confirm(f"salvage {path}?", err=True)):
        raise click.UsageError("nothing was done; confirm with --yes")
    saved = rescue(path)
    for sentence in saved.lost:
        click.echo(f"lost: {sentence}", err=True)
    click.echo(
        f"{sum(saved.kept.values())} events of {len(saved.kept)} sessions kept; the old file is {saved.aside}"
    )
