"""`ferrule sessions fork|rewind`: go on from an earlier point of a session, with its files as they
were then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ferrule.engine.rewind.rewind import Point, PutBack
    from ferrule.permissions.filesystem.workspace import Workspace
    from ferrule.storage.journal.protocols import Journal


def _worked(store: Journal, session: str) -> tuple[int, str]:
    """The number of finished runs of a session, and its workspace."""
    from ferrule.core.events import RunFinished, SessionOpened

    workspace, finished = "", 0
    for record in store.records(session):
        if isinstance(record.event, SessionOpened):
            workspace = record.event.workspace
        finished += isinstance(record.event, RunFinished)
    return finished, workspace


@click.command()
@click.argument("session")
@click.option(
    "--run",
    type=click.IntRange(0),
    help="Keep the history up to the end of this run (default: all of it).",
)
def fork(session: str, run: int | None) -> int:
    """A new session that goes on from a point of another one, which stays as it is. Prints its
    id.
    """
    from ferrule.engine.rewind.rewind import fork as forked
    from ferrule.runtime.assemble import journal
    from ferrule.storage import paths
    from ferrule.storage.artifacts.files import FileArtifacts

    with journal() as store:
        found = store.find(session).session
        runs = _worked(store, found)[0] if run is None else run
        name = forked(store, found, runs, FileArtifacts(paths.state() / "artifacts"))
    click.echo(name)
    click.echo(f"go on with `ferrule sessions resume {name[:12]} ...`", err=True)
    return 0


@click.command()
@click.argument("session")
@click.option(
    "--run",
    type=click.IntRange(0),
    required=True,
    help="Back to the end of this run; 0 is before the first.",
)
@click.option("--dry-run", "dry", is_flag=True, help="Only say what would be put back.")
@click.option("--force", is_flag=True, help="Put back also what something else has changed since.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
def rewind(session: str, run: int, dry: bool, force: bool, yes: bool) -> int:
    """Put the files that the session's tools have changed since a run back, and fork the session
    there.

    What commands changed is not kept and not put back. Names that no tool may touch stay as they
    are. Exit code 3: some files were left alone.
    """
    from contextlib import closing

    from ferrule.engine.rewind.rewind import fork as forked
    from ferrule.engine.rewind.rewind import put_back, rewind_plan
    from ferrule.runtime.assemble import journal
    from ferrule.storage import paths
    from ferrule.storage.artifacts.files import FileArtifacts
    from ferrule.storage.artifacts.store import Scope

    artifacts = FileArtifacts(paths.state() / "artifacts")
    with journal() as store:
        info = store.find(session)
        found, scope = info.session, Scope(info.tenant, info.user, info.session)
        if not dry:
            # Nobody may work in these files meanwhile.
            store.lease(found)
        point = rewind_plan(store.records(found), run)
        _, folder = _worked(store, found)
        if not folder or not Path(folder).is_dir():
            click.echo(f"nothing was done: the session's folder `{folder}` is not there", err=True)
            return 1
        with closing(_workspace(folder)) as workspace:
            would = put_back(point, workspace, artifacts, scope, force=force, dry=True)
            _tell(point, would)
            if dry:
                return 3 if would.left_alone else 0
            if code := _refused(len(would.restored), folder, yes):
                return code
            done = put_back(point, workspace, artifacts, scope, force=force)
        name = forked(store, found, run, artifacts)
    click.echo(name)
    click.echo(
        f"{len(done.restored)} put back; go on with `ferrule sessions resume {name[:12]} ...`",
        err=True,
    )
    return 3 if done.left_alone else 0


def _workspace(folder: str) -> Workspace:
    """The folder, with the names that this person's settings protect and the paths that their rules
    deny.
    """
    from ferrule.permissions.filesystem.workspace import Workspace
    from ferrule.permissions.gate import Gate
    from ferrule.permissions.protected_names import DEFAULT
    from ferrule.storage.settings.settings import load_settings

    settings = load_settings(workspace=folder)
    names = DEFAULT.extended(
        reserved=settings["reserved.extend"], secret=settings["secrets.extend"]
    )
    plain = Workspace(folder, names=names)
    gate = Gate(settings.rules, root=plain.root, names=names)
    return plain.refusing(gate.refuses)


def _tell(point: Point, would: PutBack) -> None:
    from ferrule.cli.terminal import visible

    for path in would.restored:
        click.echo(visible(f"{'restore' if point.wanted[path] else 'remove':8} {path}"))
    for path, why in would.left_alone.items():
        click.echo(visible(f"leave    {path}: {why}"))
    if point.uncovered:
        said = (
            f"{point.uncovered} calls since (commands and the like) may have changed more: that "
            "is not put back"
        )
        click.echo(said, err=True)


def _refused(count: int, folder: str, yes: bool) -> int:
    """The exit code, if a person does not want it; else 0."""
    import sys

    from ferrule.cli.terminal import visible

    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        click.echo(
            "nothing was done: this wants a person's yes\nhint: confirm with --yes", err=True
        )
        return 7
    if not yes and not click.confirm(visible(f"put back {count} files in {folder}?"), err=True):
        click.echo("nothing was done", err=True)
        return 1
    return 0
