"""`ferrule audit`: what calls did, who let them, and the proof that nobody changed the record."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ferrule.storage.audit.audit import AuditedCall
    from ferrule.storage.audit.checkpoints import Checkpoint
    from ferrule.storage.audit.signing import Verifier
    from ferrule.storage.audit.verification import Verified
    from ferrule.storage.journal.protocols import Journal

_KEY = click.option(
    "--key", type=click.Path(dir_okay=False), help="The key's file (default: the person's own)."
)
_POINTS = click.option(
    "--checkpoints",
    type=click.Path(dir_okay=False),
    help="Their file (default: beside the journal).",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Machine-readable.")


@click.group()
def audit() -> None:
    """Verify the journal, explain calls, export, sign, and print receipts."""


@audit.command()
@click.argument("target", nargs=-1)
@click.option(
    "--key",
    type=click.Path(dir_okay=False),
    help="Public key: only checkpoints that it signed count.",
)
@_POINTS
@_JSON
def verify(target: tuple[str, ...], key: str | None, checkpoints: str | None, as_json: bool) -> int:
    """Check sessions, exported files or archives; all sessions and the journal's file if none is
    named.

    Names each event that was changed, removed, inserted, moved, or cut off. Exit code 1 if anything
    does not hold.
    """
    from ferrule.cli.terminal import as_json as encoded

    with _store() as store:
        points = _points(store, checkpoints)
        verifier = _verifier(key)
        done = [_checked(store, name, points, verifier) for name in target or ("",)]
    if as_json:
        click.echo(encoded([one.as_record() for one in done], indent=2))
    else:
        for one in done:
            _print(one)
    return 0 if all(one.whole for one in done) else 1


def _checked(
    store: Journal, name: str, points: list[Checkpoint], verifier: Verifier | None
) -> Verified:
    from ferrule.core.errors import SessionNotFound
    from ferrule.storage.audit.verification import verify_file, verify_sessions

    if not name:
        return verify_sessions(store, points=points, verifier=verifier)
    try:
        session = store.find(name).session
    except SessionNotFound:
        if not Path(name).is_file():
            raise
        return verify_file(Path(name), points=points, verifier=verifier)
    return verify_sessions(store, [session], points=points, verifier=verifier)


def _print(done: Verified) -> None:
    from ferrule.cli.terminal import visible

    wrong = {one.session for one in done.findings}
    for one in done.sessions:
        if one.archived:
            click.echo(
                visible(f"{one.session}: {one.events} events are in the archive {one.archived}")
            )
        elif one.session not in wrong:
            signed = f", signed up to event {one.signed}" if one.signed else ""
            click.echo(visible(f"{one.session}: {one.events} events verify{signed}"))
    for finding in done.findings:
        click.echo(visible(f"error: {finding.text}"), err=True)
    for note in done.notes:
        click.echo(visible(f"note: {note}"), err=True)
    if any(finding.event for finding in done.findings):
        click.echo(
            "hint: `ferrule sessions salvage` keeps what is intact in a new journal", err=True
        )


@audit.command()
@click.argument("call")
@click.option("--session", help="Where to look (default: everywhere, the newest session first).")
@_JSON
def explain(call: str, session: str | None, as_json: bool) -> int:
    """Say why a call was allowed or refused: the rule and where it stands, the mode, the person,
    the sandbox, the outcome.

    CALL is the call's id or the beginning of it. Exit code 4 if it was refused.
    """
    from ferrule.cli.terminal import as_json as encoded
    from ferrule.cli.terminal import visible
    from ferrule.storage.audit.wording import explained

    with _store() as store:
        found = _call(store, call, session)
    if as_json:
        click.echo(encoded(found.as_record(), indent=2))
    else:
        for line in explained(found):
            click.echo(visible(line))
    return 4 if found.outcome == "permission_denied" else 0


def _call(store: Journal, name: str, session: str | None) -> AuditedCall:
    from ferrule.storage.audit.past_calls import past_calls

    near: list[AuditedCall] = []
    within = None
    for past in past_calls(store, sessions=None if session is None else [session]):
        if near and past.audit.session != within:
            break
        if past.audit.call_id == name:
            return past.audit
        if past.audit.call_id.startswith(name):
            near.append(past.audit)
            within = past.audit.session
    if len(near) != 1:
        several = ", ".join(f"`{one.call_id}`" for one in near[:5])
        raise click.UsageError(
            f"`{name}` is the start of several calls: {several}"
            if near
            else f"there is no call `{name}`; `ferrule audit calls SESSION` lists them"
        )
    return near[0]


@audit.command("calls")
@click.argument("session")
@_JSON
def list_calls(session: str, as_json: bool) -> None:
    """One line per call of a session: id, tool, what let it pass or stopped it, outcome."""
    from ferrule.cli.terminal import as_json as encoded
    from ferrule.cli.terminal import visible
    from ferrule.storage.audit.audit import calls

    with _store() as store:
        for call in calls(store.records(store.find(session).session)):
            line = f"{call.call_id:40}  {call.tool:24}  {call.settled_by:8}  {call.outcome}"
            click.echo(encoded(call.as_record()) if as_json else visible(line))


@audit.command()
@click.argument("session", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    help="File to write (default: standard output).",
)
@click.option(
    "--raw", is_flag=True, help="Leave secrets in: without it, what looks like one is taken out."
)
@click.option("--sign", "signed", is_flag=True, help="Sign the end of the file.")
@_KEY
def export(
    session: tuple[str, ...], output: str | None, raw: bool, signed: bool, key: str | None
) -> None:
    """Write the audit of these sessions (of all) as JSON lines that `ferrule audit verify` checks.

    Results are in it as digests, never as data; digests are of what was recorded, also where a text
    was redacted.
    """
    import os

    from ferrule.permissions.redaction import Redactor
    from ferrule.storage.audit.export import export_audit
    from ferrule.storage.audit.signing import Signer, key_path

    signer = Signer.load(Path(key) if key else key_path()) if signed else None
    with _store() as store:
        names = [store.find(name).session for name in session] or [
            info.session for info in store.sessions()
        ]
        redact = None if raw else Redactor.of_process(os.environ).text
        lines = export_audit(store, names, redact=redact, signer=signer)
        if output is None:
            for line in lines:
                click.echo(line, nl=False)
            return
        with click.open_file(output, "w", encoding="utf-8", atomic=True) as file:
            file.writelines(lines)
    click.echo(f"wrote {output}", err=True)


@audit.command("receipts")
@click.argument("session")
def print_receipts(session: str) -> None:
    """Print the receipt of each run of a session as a JSON line: digests, approvals, effects,
    cost.
    """
    from ferrule.cli.terminal import as_json as encoded
    from ferrule.storage.audit.receipts import receipts

    with _store() as store:
        for receipt in receipts(store.records(store.find(session).session)):
            click.echo(encoded(receipt))


@audit.command("key")
@_KEY
def make_key(key: str | None) -> None:
    """Make a key to sign with: private, for you alone, and public, to hand on."""
    from ferrule.storage.audit.signing import Signer, key_path, public_path

    path = Path(key) if key else key_path()
    made = Signer.make(path)
    click.echo(f"key {made.name}: {path}\npublic: {public_path(path)}")


@audit.command()
@click.argument("session", nargs=-1)
@_KEY
@_POINTS
def sign(session: tuple[str, ...], key: str | None, checkpoints: str | None) -> None:
    """Sign where sessions stand now (all of them if none is named), after checking each.

    What was signed can no longer be changed, cut off or taken away unseen by anyone without the
    key.
    """
    from ferrule.cli.terminal import visible
    from ferrule.storage.audit.checkpoints import sign_heads
    from ferrule.storage.audit.signing import Signer, key_path

    signer = Signer.load(Path(key) if key else key_path())
    with _store() as store:
        names = [store.find(name).session for name in session] or [
            info.session for info in store.sessions()
        ]
        now = int(time.time() * 1000)
        made = sign_heads(store, _points_file(store, checkpoints), signer, names, now=now)
    for point in made:
        click.echo(visible(f"{point.session}: event {point.seq} signed"))
    if not made:
        click.echo("nothing new to sign", err=True)


@contextmanager
def _store() -> Generator[Journal]:
    from ferrule.runtime.assemble import journal

    with journal() as store:
        yield store


def _points_file(store: Journal, given: str | None) -> Path:
    from ferrule.storage.audit.checkpoints import place_of

    return Path(given) if given else place_of(store)


def _points(store: Journal, given: str | None) -> list[Checkpoint]:
    from ferrule.storage.audit.checkpoints import read_checkpoints

    path = _points_file(store, given)
    if given and not path.exists():
        raise click.UsageError(f"there are no checkpoints at `{given}`")
    return read_checkpoints(path)


def _verifier(key: str | None) -> Any:
    from ferrule.storage.audit.signing import Verifier

    return Verifier.load(Path(key)) if key else None
