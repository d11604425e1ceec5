"""`ferrule sessions replay|bundle|to-case|import`: replay recorded sessions, and move them.

A replay checks the record offline, runs it again with another model or the current tools, or judges
it by other permission rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ferrule.cli.new_files import check_named_file
from ferrule.cli.terminal import encode_json, escape_invisible
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options
from ferrule.storage import paths

with lazy_imports():
    from ferrule.cli import terminal_agent
    from ferrule.core import calls as core_calls
    from ferrule.engine.replay import recording, rerun, what_if
    from ferrule.engine.replay import replay as replays
    from ferrule.evaluation import recorded_cases
    from ferrule.permissions import rule_evaluation
    from ferrule.runtime import assemble
    from ferrule.storage.artifacts import files as artifact_files
    from ferrule.storage.audit import past_calls, verification
    from ferrule.storage.export import archive, bundles, jsonl
    from ferrule.storage.settings import settings as person_settings

if TYPE_CHECKING:
    from ferrule.core.calls import ToolCall, ToolResult
    from ferrule.core.events import JournalRecord
    from ferrule.engine.agent import Agent
    from ferrule.permissions.rule_evaluation import PermissionGate
    from ferrule.storage.journal.protocols import Journal


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION|FILE]...")
@click.option("--all", "every", is_flag=True, help="All sessions of the journal.")
@click.option(
    "--live", is_flag=True, help="Use the recorded answers with the current tools and rules."
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(exists=True, dir_okay=False),
    help="Settings file: report which calls its rules would have stopped.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@common_options
def replay(
    sessions: tuple[str, ...],
    every: bool,
    live: bool,
    policy_file: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Replay recorded sessions; by default offline, with a history equal byte for byte.

    SESSION is an id or the beginning of one; FILE is a bundle, an export (.jsonl) or an archive
    (.jsonl.gz). With --model another model gets the same messages and the recorded results; with
    --live the recorded answers call the tools as they are now. Exit code 1: something differs; with
    --policy, 4: a call that ran would be denied, 7: one would be asked about.
    """
    if not sessions and not every:
        raise click.UsageError("name a session or a file, or give --all")
    if sum((live, policy_file is not None, options.get("model") is not None)) > 1:
        raise click.UsageError("--model, --live and --policy exclude each other; choose one")

    with assemble.open_journal() as store:
        if policy_file is not None:
            if file := next((name for name in sessions if Path(name).is_file()), None):
                raise click.UsageError(
                    f"--policy needs sessions of the journal; add `{file}` to it with "
                    "`ferrule sessions import`"
                )
            return _judge(policy_file, sessions, store, options, as_json)
        found = _recordings(sessions, every, store)
        if live or options.get("model"):
            return _run_again(found, options, live, as_json)
        return _compare(found, as_json)


def _recordings(
    sessions: tuple[str, ...], every: bool, store: Journal
) -> Iterator[list[JournalRecord]]:
    for name in _conversations(store) if every else sessions:
        if not every and Path(name).is_file():
            yield from bundles.read_recording(Path(name))
        else:
            yield list(store.records(store.find(name).session))


def _conversations(store: Journal) -> list[str]:
    """Return all sessions except those that only record archiving, in which nothing was run."""
    return [
        info.session
        for info in store.sessions()
        if not info.session.startswith(verification.ARCHIVE_SESSION_PREFIX)
    ]


def _compare(found: Iterator[list[JournalRecord]], as_json: bool) -> int:
    """Replay sessions offline and compare the histories."""
    outcomes = [replays.replay(records) for records in found]
    if as_json:
        click.echo(encode_json([{**asdict(one), "same": one.same} for one in outcomes], indent=2))
    else:
        for one in outcomes:
            unproven = f" ({one.unproven} without a recorded digest)" if one.unproven else ""
            size = f"{one.events} events, {one.runs} runs"
            verdict = "the same, byte for byte"
            if not one.same:
                verdict = f"not the same: {one.differences[0]}"
            click.echo(f"{one.session[:12]}  {size}: {verdict}{unproven}")
    different = sum(not one.same for one in outcomes)
    click.echo(f"{len(outcomes)} sessions replayed, {different} came out otherwise", err=True)
    return 1 if different else 0


def _run_again(
    found: Iterator[list[JournalRecord]], options: dict[str, Any], live: bool, as_json: bool
) -> int:
    """Run sessions again with another model or the current tools, and compare the outcomes."""
    import asyncio

    assembly = terminal_agent.assemble_at_terminal(options)

    async def run_all() -> list[rerun.RerunReport]:
        try:
            return [
                await _rerun(recording.Recording.of(records), assembly.agent, live)
                for records in found
            ]
        finally:
            await assembly.close()

    outcomes = asyncio.run(run_all())
    if as_json:
        click.echo(encode_json([{**asdict(one), "same": one.same} for one in outcomes], indent=2))
    else:
        for one in outcomes:
            _print_rerun(one)
    different = sum(not one.same for one in outcomes)
    click.echo(f"{len(outcomes)} sessions run again, {different} came out otherwise", err=True)
    return 1 if different else 0


async def _rerun(recording: Any, agent: Agent, live: bool) -> rerun.RerunReport:
    if live:
        return await rerun.rerun(recording, agent, tools="live")
    return await rerun.rerun(recording, agent, model=agent.model_client)


def _print_rerun(again: rerun.RerunReport) -> None:
    verdict = "the same" if again.same else "not the same"
    click.echo(f"{again.session[:12]}  {again.model}: {verdict}")
    for run in again.runs:
        mark = "=" if run.same else "!"
        click.echo(escape_invisible(f"  {mark} {_shorten(run.question)}"))
        if (run.text, run.stop) != (run.recorded_text, run.recorded_stop):
            click.echo(escape_invisible(f"      answer    {_shorten(run.text) or run.stop}"))
            recorded = _shorten(run.recorded_text) or run.recorded_stop
            click.echo(escape_invisible(f"      recorded  {recorded}"))
        for call in run.calls:
            if not call.same:
                _print_call("call", call.call, call.result)
                _print_call("recorded", call.recorded_call, call.recorded_result)
    for name in again.missing:
        click.echo(escape_invisible(f"  the agent has no tool `{name}` any more"))
    if again.unmatched:
        click.echo(f"  {len(again.unmatched)} calls that the recording has no answer for")


def _print_call(label: str, call: ToolCall | None, result: ToolResult | None) -> None:
    text = "none" if call is None else f"{call.tool} {call.arguments}"
    if result is not None:
        outcome = result.data if result.success else result.error_message
        text += f" -> {outcome}"
    click.echo(escape_invisible(f"      {label:9} {_shorten(text)}"))


def _judge(
    file: str, sessions: tuple[str, ...], store: Journal, options: dict[str, Any], as_json: bool
) -> int:
    """Report which recorded calls the rules of a settings file would have stopped."""
    catalog = terminal_agent.assemble_at_terminal(options, needs_model=False).agent.catalog
    past = past_calls.read_past_calls(store, sessions=sessions or None)
    judged = list(what_if.what_if(past, lambda workspace: _make_gate(file, workspace), catalog))
    stopped = [one for one in judged if one.stricter]
    if as_json:
        click.echo(encode_json([_make_row(one) for one in judged], indent=2))
    else:
        for one in stopped:
            _print_stopped(one)
    refused = sum(one.verdict != "ask" for one in stopped)
    looser = sum(one.looser for one in judged)
    click.echo(
        f"{len(judged)} calls: of those that ran, {refused} would be refused and "
        f"{len(stopped) - refused} asked about;"
        f" {looser} that did not run would run",
        err=True,
    )
    if refused:
        return 4
    return 7 if stopped else 0


def _make_gate(file: str, workspace: str) -> PermissionGate:
    """Make the gate that a person with this settings file would have in that workspace."""
    root = Path(workspace or ".").absolute()
    settings = person_settings.load_settings(user_file=Path(file), workspace=root, environment={})
    return rule_evaluation.PermissionGate(
        settings.rules, mode=rule_evaluation.select_mode(settings.mode), root=root
    )


def _make_row(judged: what_if.PolicyComparison) -> dict[str, Any]:
    audit = judged.call.audit
    return {
        "session": audit.session,
        "call": audit.call_id,
        "event": audit.event,
        "tool": judged.call.tool,
        "arguments": judged.call.arguments,
        "ran": judged.ran,
        "verdict": judged.verdict,
        "reason": judged.reason,
        "rule": judged.rule,
        "known": judged.known,
    }


def _print_stopped(judged: what_if.PolicyComparison) -> None:
    audit = judged.call.audit
    arguments = _shorten(core_calls.encode_json(judged.call.arguments))
    where = f"{audit.session[:12]} event {audit.event}"
    click.echo(escape_invisible(f"{judged.verdict:7} {where:24} {judged.call.tool} {arguments}"))
    click.echo(escape_invisible(f"        {_shorten(judged.reason)}"))


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    required=True,
    help="File to write (`*.ferrule`).",
)
@click.option(
    "--artifacts/--no-artifacts",
    default=True,
    help="Whether large results, pictures and documents go along (default: yes).",
)
def bundle(sessions: tuple[str, ...], output: str, artifacts: bool) -> int:
    """Write sessions and their artifacts into one file, for another machine or a test."""
    check_named_file(output)
    try:
        with assemble.open_journal() as store:
            kept = (
                artifact_files.FileArtifactStore(paths.state() / "artifacts") if artifacts else None
            )
            made = bundles.write_bundle(Path(output), store, sessions, kept)
    except FileExistsError:
        click.echo(
            f"nothing was written: `{output}` exists already\nhint: choose another name", err=True
        )
        return 1
    except OSError as error:
        click.echo(f"nothing was written: `{output}`: {error.strerror or error}", err=True)
        return 1
    click.echo(
        f"wrote {output}: {len(made)} sessions, {sum(one.events for one in made)} events", err=True
    )
    return 0


@click.command("to-case")
@click.argument("session")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder to write to (default: this one).",
)
@click.option("--name", default="", help="Name of the case.")
def to_case(session: str, output: Path, name: str) -> int:
    """Write a session as a case for `ferrule eval`, with a recording beside it.

    The case expects the same calls and the same answer. `ferrule eval FILE --offline` checks the
    recording without a model; loosen what other models need not say in the same words.
    """
    check_named_file(output)
    artifacts = artifact_files.FileArtifactStore(paths.state() / "artifacts")
    with assemble.open_journal() as store:
        written = recorded_cases.write_case(store, session, output, name, artifacts)
    for note in written.notes:
        click.echo(f"! {note}", err=True)
    click.echo(escape_invisible(str(written.case)))
    click.echo(
        f"wrote {written.case} and {written.recording.name}: {written.messages} messages, "
        f"{written.calls} calls\nhint: `ferrule eval {written.case} --offline`",
        err=True,
    )
    return 0


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def import_sessions(file: str) -> int:
    """Import the sessions of a bundle, an export (.jsonl) or an archive (.jsonl.gz).

    They are added to the journal unchanged, with their owner and hashes.
    """
    path = Path(file)
    with assemble.open_journal() as store:
        if path.suffix == ".jsonl":
            with verification.open_lines(path) as lines:
                names = jsonl.import_jsonl(store, lines)
        elif path.name.endswith(".jsonl.gz"):
            names = archive.import_sessions(store, path)
        else:
            names = bundles.import_bundle(
                path, store, artifact_files.FileArtifactStore(paths.state() / "artifacts")
            )
    for name in names:
        click.echo(name)
    click.echo(f"{len(names)} sessions imported", err=True)
    return 0
