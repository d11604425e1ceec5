"""`ferrule sessions replay|bundle|import`: recorded sessions again, elsewhere, under other rules or
with another model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.options import common

if TYPE_CHECKING:
    from ferrule.core.events import Record
    from ferrule.engine.agent import Agent
    from ferrule.engine.replay.rerun import Again
    from ferrule.engine.replay.what_if import Judged
    from ferrule.permissions.gate import Gate
    from ferrule.storage.journal.protocols import Journal


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION|FILE]...")
@click.option("--all", "every", is_flag=True, help="All sessions of the journal.")
@click.option(
    "--live", is_flag=True, help="The recorded answers, with the tools and rules of today."
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(exists=True, dir_okay=False),
    help="A settings file: which calls its rules would have stopped.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@common
def replay(
    sessions: tuple[str, ...],
    every: bool,
    live: bool,
    policy_file: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Replay recorded sessions: by default offline, and the history must come out byte for byte as
    it was.

    SESSION is an id (or its beginning), FILE a bundle, an export (.jsonl) or an archive
    (.jsonl.gz). With --model another model works the same messages and gets the recorded results;
    with --live the recorded answers meet the tools as they are. Exit code 1: something came out
    otherwise; with --policy 4: a call that ran would be refused, 7: one would be asked about.
    """
    if not sessions and not every:
        raise click.UsageError("name a session or a file, or say --all")
    if sum((live, policy_file is not None, options.get("model") is not None)) > 1:
        raise click.UsageError("--model, --live and --policy are three different things: say one")
    from ferrule.runtime.assemble import journal

    with journal() as store:
        if policy_file is not None:
            if file := next((name for name in sessions if Path(name).is_file()), None):
                raise click.UsageError(
                    f"--policy judges sessions of the journal: bring `{file}` in with "
                    "`ferrule sessions import`"
                )
            return _under(policy_file, sessions, store, options, as_json)
        found = _recordings(sessions, every, store)
        if live or options.get("model"):
            return _again(found, options, live, as_json)
        return _strictly(found, as_json)


def _recordings(sessions: tuple[str, ...], every: bool, store: Journal) -> Iterator[list[Record]]:
    from ferrule.storage.export.bundles import recorded

    for name in _conversations(store) if every else sessions:
        if not every and Path(name).is_file():
            yield from recorded(Path(name))
        else:
            yield list(store.records(store.find(name).session))


def _conversations(store: Journal) -> list[str]:
    """All sessions but those that only tell of archives: nothing in them was worked."""
    from ferrule.storage.audit.verification import ARCHIVED

    return [info.session for info in store.sessions() if not info.session.startswith(ARCHIVED)]


def _strictly(found: Iterator[list[Record]], as_json: bool) -> int:
    from ferrule.cli.terminal import as_json as encoded
    from ferrule.engine.replay.replay import replay as replayed

    outcomes = [replayed(records) for records in found]
    if as_json:
        click.echo(encoded([{**asdict(one), "same": one.same} for one in outcomes], indent=2))
    else:
        for one in outcomes:
            unproven = f" ({one.unproven} without a recorded digest)" if one.unproven else ""
            size = f"{one.events} events, {one.runs} runs"
            said = "the same, byte for byte" if one.same else f"not the same: {one.differences[0]}"
            click.echo(f"{one.session[:12]}  {size}: {said}{unproven}")
    different = sum(not one.same for one in outcomes)
    click.echo(f"{len(outcomes)} sessions replayed, {different} came out otherwise", err=True)
    return 1 if different else 0


def _again(
    found: Iterator[list[Record]], options: dict[str, Any], live: bool, as_json: bool
) -> int:
    import asyncio

    from ferrule.cli.terminal import as_json as encoded
    from ferrule.cli.terminal_agent import seat
    from ferrule.engine.replay.recording import Recording

    assembly = seat(options)

    async def work() -> list[Again]:
        try:
            return [
                await _one_again(Recording.of(records), assembly.agent, live) for records in found
            ]
        finally:
            await assembly.close()

    outcomes = asyncio.run(work())
    if as_json:
        click.echo(encoded([{**asdict(one), "same": one.same} for one in outcomes], indent=2))
    else:
        for one in outcomes:
            _tell(one)
    different = sum(not one.same for one in outcomes)
    click.echo(f"{len(outcomes)} sessions run again, {different} came out otherwise", err=True)
    return 1 if different else 0


async def _one_again(recording: Any, agent: Agent, live: bool) -> Again:
    from ferrule.engine.replay.rerun import rerun

    if live:
        return await rerun(recording, agent, tools="live")
    return await rerun(recording, agent, model=agent.wire)


def _tell(again: Again) -> None:
    from ferrule.cli.terminal import visible

    click.echo(
        f"{again.session[:12]}  {again.model}: {'the same' if again.same else 'not the same'}"
    )
    for run in again.runs:
        click.echo(visible(f"  {'=' if run.same else '!'} {_line(run.question)}"))
        if (run.text, run.stop) != (run.recorded_text, run.recorded_stop):
            click.echo(visible(f"      answer    {_line(run.text) or run.stop}"))
            click.echo(visible(f"      recorded  {_line(run.recorded_text) or run.recorded_stop}"))
        for call in run.calls:
            if not call.same:
                for word, made, result in (
                    ("call", call.call, call.result),
                    ("recorded", call.recorded_call, call.recorded_result),
                ):
                    what = "none" if made is None else f"{made.tool} {made.arguments}"
                    came = (
                        ""
                        if result is None
                        else f" -> {result.data if result.success else result.error_message}"
                    )
                    click.echo(visible(f"      {word:9} {_line(what + came)}"))
    for name in again.missing:
        click.echo(visible(f"  the agent has no tool `{name}` any more"))
    if again.unmatched:
        click.echo(f"  {len(again.unmatched)} calls that the recording has no answer for")


def _under(
    file: str, sessions: tuple[str, ...], store: Journal, options: dict[str, Any], as_json: bool
) -> int:
    from ferrule.cli.terminal import as_json as encoded
    from ferrule.cli.terminal_agent import seat
    from ferrule.engine.replay.what_if import what_if
    from ferrule.storage.audit.past_calls import past_calls

    catalog = seat(options).agent.catalog
    past = past_calls(store, sessions=sessions or None)
    judged = list(what_if(past, lambda workspace: _gate(file, workspace), catalog))
    stopped = [one for one in judged if one.stricter]
    if as_json:
        click.echo(encoded([_row(one) for one in judged], indent=2))
    else:
        for one in stopped:
            _tell_stopped(one)
    refused = sum(one.verdict != "ask" for one in stopped)
    looser = sum(one.looser for one in judged)
    click.echo(
        f"{len(judged)} calls: of those that ran, {refused} would be refused and "
        f"{len(stopped) - refused} asked about;"
        f" {looser} that did not run would run",
        err=True,
    )
    return 4 if refused else 7 if stopped else 0


def _gate(file: str, workspace: str) -> Gate:
    """The gate that a person with these settings would have in that workspace."""
    from ferrule.permissions.gate import Gate, select_mode
    from ferrule.storage.settings.settings import load_settings

    root = Path(workspace or ".").absolute()
    settings = load_settings(user_file=Path(file), workspace=root, environment={})
    return Gate(settings.rules, mode=select_mode(settings.mode, "flags"), root=root)


def _row(judged: Judged) -> dict[str, Any]:
    audit = judged.call.audit
    return {
        "session": audit.session,
        "call": audit.call_id,
        "event": audit.event,
        "tool": judged.call.tool,
        "arguments": judged.call.values,
        "ran": judged.ran,
        "verdict": judged.verdict,
        "reason": judged.reason,
        "rule": judged.rule,
        "known": judged.known,
    }


def _tell_stopped(judged: Judged) -> None:
    from ferrule.cli.terminal import visible
    from ferrule.core.calls import compact

    audit, arguments = judged.call.audit, compact(judged.call.values)
    where = f"{audit.session[:12]} event {audit.event}"
    click.echo(visible(f"{judged.verdict:7} {where:24} {judged.call.tool} {_line(arguments)}"))
    click.echo(visible(f"        {_line(judged.reason)}"))


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    required=True,
    help="The file to write (`*.ferrule`).",
)
def bundle(sessions: tuple[str, ...], output: str) -> int:
    """Put sessions and the artifacts they refer to into one file, for another machine or a test."""
    from ferrule.runtime.assemble import journal
    from ferrule.storage import paths
    from ferrule.storage.artifacts.files import FileArtifacts
    from ferrule.storage.export.bundles import write_bundle

    try:
        with journal() as store:
            made = write_bundle(
                Path(output), store, sessions, FileArtifacts(paths.state() / "artifacts")
            )
    except FileExistsError:
        click.echo(
            f"nothing was written: `{output}` is there already\nhint: choose another name", err=True
        )
        return 1
    except OSError as error:
        click.echo(f"nothing was written: `{output}`: {error.strerror or error}", err=True)
        return 1
    click.echo(
        f"wrote {output}: {len(made)} sessions, {sum(one.events for one in made)} events", err=True
    )
    return 0


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def import_sessions(file: str) -> int:
    """Add the sessions of a bundle, an export (.jsonl) or an archive (.jsonl.gz) to the journal, as
    they are: with their owner and hashes.
    """
    from ferrule.runtime.assemble import journal
    from ferrule.storage import paths
    from ferrule.storage.artifacts.files import FileArtifacts
    from ferrule.storage.audit.verification import opened
    from ferrule.storage.export.archive import import_file
    from ferrule.storage.export.bundles import import_bundle
    from ferrule.storage.export.jsonl import import_jsonl

    path = Path(file)
    with journal() as store:
        if path.suffix == ".jsonl":
            with opened(path) as lines:
                names = import_jsonl(store, lines)
        elif path.name.endswith(".jsonl.gz"):
            names = import_file(store, path)
        else:
            names = import_bundle(path, store, FileArtifacts(paths.state() / "artifacts"))
    for name in names:
        click.echo(name)
    click.echo(f"{len(names)} sessions imported", err=True)
    return 0
