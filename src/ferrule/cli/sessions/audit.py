"""`ferrule audit`: what tool calls did, who allowed them, and proof that the record is intact."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ferrule.cli.new_files import check_named_file
from ferrule.cli.terminal import encode_json as encode_json
from ferrule.cli.terminal import escape_invisible
from ferrule.core.errors import SessionNotFound
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage import paths

with lazy_imports():
    from ferrule.permissions import redaction
    from ferrule.runtime import assemble
    from ferrule.storage.artifacts import files as artifact_files
    from ferrule.storage.audit import audit as audited_calls
    from ferrule.storage.audit import checkpoints as signed_heads
    from ferrule.storage.audit import explanation, past_calls, signing, verification
    from ferrule.storage.audit import export as audit_export
    from ferrule.storage.audit import receipts as call_receipts
    from ferrule.storage.journal import sqlite

if TYPE_CHECKING:
    from ferrule.storage.audit.audit import AuditedCall
    from ferrule.storage.audit.checkpoints import Checkpoint
    from ferrule.storage.audit.signing import Signer, Verifier
    from ferrule.storage.audit.verification import Verification
    from ferrule.storage.journal.protocols import Journal

_KEY = click.option(
    "--key", type=click.Path(dir_okay=False), help="File of the key (default: your own)."
)
_POINTS = click.option(
    "--checkpoints",
    type=click.Path(dir_okay=False),
    help="File of the checkpoints (default: beside the journal).",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Machine-readable.")


@click.group(cls=CommandGroup)
def audit() -> None:
    """Verify the journal, explain calls, export, sign, and print receipts.

    \b
    Examples:
      ferrule audit verify
      ferrule audit verify 4f2a
    """  # noqa: D301  click reads the mark


@audit.command()
@click.argument("target", nargs=-1)
@click.option(
    "--key",
    type=click.Path(dir_okay=False),
    help="Public key: count only checkpoints that it signed.",
)
@_POINTS
@_JSON
def verify(target: tuple[str, ...], key: str | None, checkpoints: str | None, as_json: bool) -> int:
    """Verify sessions, exported files or archives; without a name, the whole journal.

    Names each event that was changed, removed, inserted, moved or cut off, and each kept output
    that was changed. Exit code 1 if anything does not verify.
    """
    with _open_journal() as journal:
        gone = _find_missing_file(journal)
        if gone is not None and not target:
            click.echo(
                escape_invisible(
                    f"error: nothing was verified: there is no journal at `{gone}`; if sessions "
                    "were kept there, it was removed: put a copy back, or name an export"
                ),
                err=True,
            )
            return 1
        points = _read_points(journal, checkpoints)
        verifier = _load_verifier(key)
        results = [_verify_one(journal, name, points, verifier) for name in target or ("",)]
    if as_json:
        click.echo(encode_json([result.as_record() for result in results], indent=2))
    else:
        for result in results:
            _print(result)
    return 0 if all(result.is_intact for result in results) else 1


def _find_missing_file(journal: Journal) -> Path | None:
    """Return where the journal's file would be, if there is none."""
    path = journal.path if isinstance(journal, sqlite.SqliteJournal) else None
    return path if path is not None and not path.exists() else None


def _verify_one(
    journal: Journal, name: str, points: list[Checkpoint], verifier: Verifier | None
) -> Verification:
    """Verify a session, or a file, or everything if `name` is empty."""
    kept = artifact_files.FileArtifactStore(paths.state() / "artifacts")
    if not name:
        return verification.verify_sessions(
            journal, points=points, verifier=verifier, artifacts=kept
        )
    try:
        session = journal.find(name).session
    except SessionNotFound:
        if not Path(name).is_file():
            raise
        return verification.verify_file(Path(name), points=points, verifier=verifier)
    return verification.verify_sessions(
        journal, [session], points=points, verifier=verifier, artifacts=kept
    )


def _print(result: Verification) -> None:
    damaged = {finding.session for finding in result.findings}
    for one in result.sessions:
        if one.archived:
            click.echo(
                escape_invisible(
                    f"{one.session}: {one.events} events are in the archive {one.archived}"
                )
            )
        elif one.session not in damaged:
            signed = f", signed up to event {one.signed}" if one.signed else ""
            click.echo(escape_invisible(f"{one.session}: {one.events} events verify{signed}"))
    for finding in result.findings:
        click.echo(escape_invisible(f"error: {finding.text}"), err=True)
    for note in result.notes:
        click.echo(escape_invisible(f"note: {note}"), err=True)
    if any(finding.event for finding in result.findings):
        click.echo(
            "hint: `ferrule sessions salvage` keeps what is intact in a new journal", err=True
        )


@audit.command()
@click.argument("call")
@click.option("--session", help="Session to look in (default: all, the newest first).")
@_JSON
def explain(call: str, session: str | None, as_json: bool) -> int:
    """Explain why a call was allowed or refused: rule, mode, person, sandbox, outcome.

    CALL is the call's id or the beginning of it. Exit code 4 if it was refused.
    """
    with _open_journal() as journal:
        found = _find_call(journal, call, session)
    if as_json:
        click.echo(encode_json(found.as_record(), indent=2))
    else:
        for line in explanation.explain(found):
            click.echo(escape_invisible(line))
    return 4 if found.outcome == "permission_denied" else 0


def _find_call(journal: Journal, name: str, session: str | None) -> AuditedCall:
    """Find a call by its id, or by the beginning of it in the newest session that has one."""
    matches: list[AuditedCall] = []
    for past in past_calls.read_past_calls(
        journal, sessions=None if session is None else [session]
    ):
        if matches and past.audit.session != matches[-1].session:
            break
        if past.audit.call_id == name:
            return past.audit
        if past.audit.call_id.startswith(name):
            matches.append(past.audit)
    if not matches:
        raise click.UsageError(
            f"there is no call `{name}`; `ferrule audit calls SESSION` lists them"
        )
    if len(matches) > 1:
        several = ", ".join(f"`{match.call_id}`" for match in matches[:5])
        raise click.UsageError(f"`{name}` is the beginning of several calls: {several}")
    return matches[0]


@audit.command("calls")
@click.argument("session")
@_JSON
def list_calls(session: str, as_json: bool) -> None:
    """List the calls of a session: id, tool, what allowed or stopped it, outcome."""
    with _open_journal() as journal:
        for call in audited_calls.audit_calls(journal.records(journal.find(session).session)):
            line = f"{call.call_id:40}  {call.tool:24}  {call.settled_by:8}  {call.outcome}"
            click.echo(encode_json(call.as_record()) if as_json else escape_invisible(line))


@audit.command()
@click.argument("session", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    help="File to write (default: standard output).",
)
@click.option(
    "--raw", is_flag=True, help="Keep secrets; without it, what looks like one is redacted."
)
@click.option("--sign", "signed", is_flag=True, help="Sign the end of the file.")
@_KEY
def export(
    session: tuple[str, ...], output: str | None, raw: bool, signed: bool, key: str | None
) -> None:
    """Export the audit of these sessions (default: all) as JSON lines.

    `ferrule audit verify` can check the file. Results are in it as digests, never as data; digests
    are of the recorded text, even if it was redacted.
    """
    signer = _load_signer(key) if signed else None
    with _open_journal() as journal:
        names = _find_sessions(journal, session)
        redact = None if raw else redaction.Redactor.for_environment(os.environ).redact_text
        lines = audit_export.export_audit(journal, names, redact=redact, signer=signer)
        if output is None:
            for line in lines:
                click.echo(line, nl=False)
            return
        check_named_file(output)
        with click.open_file(output, "w", encoding="utf-8", atomic=True) as file:
            file.writelines(lines)
    click.echo(f"wrote {output}", err=True)


@audit.command("receipts")
@click.argument("session")
def print_receipts(session: str) -> None:
    """Print a receipt per run as a JSON line: digests, approvals, effects, cost."""
    with _open_journal() as journal:
        for receipt in call_receipts.build_receipts(journal.records(journal.find(session).session)):
            click.echo(encode_json(receipt))


@audit.command("key")
@_KEY
def make_key(key: str | None) -> None:
    """Make a key pair for signing: keep the private key to yourself, share the public one."""
    path = Path(key) if key else signing.default_key_path()
    made = signing.Signer.create(path)
    click.echo(f"key {made.name}: {path}\npublic: {signing.public_key_path(path)}")


@audit.command()
@click.argument("session", nargs=-1)
@_KEY
@_POINTS
def sign(session: tuple[str, ...], key: str | None, checkpoints: str | None) -> None:
    """Verify sessions (default: all) and sign their current state.

    Nobody without the key can then change, cut off or remove signed events without being noticed.
    """
    signer = _load_signer(key)
    with _open_journal() as journal:
        names = _find_sessions(journal, session)
        now = int(time.time() * 1000)
        made = signed_heads.sign_heads(
            journal, _points_file(journal, checkpoints), signer, names, now=now
        )
    for point in made:
        click.echo(escape_invisible(f"{point.session}: event {point.seq} signed"))
    if not made:
        click.echo("nothing new to sign", err=True)


@contextmanager
def _open_journal() -> Generator[Journal]:
    with assemble.open_journal() as opened:
        yield opened


def _find_sessions(journal: Journal, names: tuple[str, ...]) -> list[str]:
    """Return the full ids of the named sessions, or of all sessions if none is named."""
    if names:
        return [journal.find(name).session for name in names]
    return [info.session for info in journal.sessions()]


def _load_signer(key: str | None) -> Signer:
    return signing.Signer.load(Path(key) if key else signing.default_key_path())


def _points_file(journal: Journal, given: str | None) -> Path:
    return Path(given) if given else signed_heads.checkpoints_path_of(journal)


def _read_points(journal: Journal, given: str | None) -> list[Checkpoint]:
    path = _points_file(journal, given)
    if given and not path.exists():
        raise click.UsageError(f"there are no checkpoints at `{given}`")
    return signed_heads.read_checkpoints(path)


def _load_verifier(key: str | None) -> Verifier | None:
    return signing.Verifier.load(Path(key)) if key else None
