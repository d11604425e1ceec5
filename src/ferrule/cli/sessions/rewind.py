"""`ferrule sessions fork|rewind`: continue from an earlier point, with the files as they were."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ferrule.cli.confirmation import has_terminal
from ferrule.cli.terminal import escape_invisible
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage import paths

with lazy_imports():
    from ferrule.core import events
    from ferrule.engine.rewind import changes
    from ferrule.engine.rewind import rewind as rewinding
    from ferrule.permissions import rule_evaluation
    from ferrule.permissions.filesystem import workspace as workspaces
    from ferrule.runtime import assemble
    from ferrule.storage.artifacts import files as artifact_files
    from ferrule.storage.artifacts import store as artifact_stores
    from ferrule.storage.settings import settings as person_settings

if TYPE_CHECKING:
    from ferrule.permissions.filesystem.workspace import Workspace
    from ferrule.storage.journal.protocols import Journal


def _summarize(store: Journal, session: str) -> tuple[int, str]:
    """Return the number of finished runs of a session, and its workspace."""
    workspace = ""
    finished = 0
    for record in store.records(session):
        if isinstance(record.event, events.SessionOpened):
            workspace = record.event.workspace
        finished += isinstance(record.event, events.RunFinished)
    return finished, workspace


@click.command()
@click.argument("session")
@click.option(
    "--run",
    type=click.IntRange(0),
    help="Keep the history up to the end of this run (default: all of it).",
)
def fork(session: str, run: int | None) -> int:
    """Start a new session from a point of another one, and print its id.

    The other session stays as it is.
    """
    with assemble.open_journal() as store:
        found = store.find(session).session
        runs = _summarize(store, found)[0] if run is None else run
        name = rewinding.fork(
            store, found, runs, artifact_files.FileArtifactStore(paths.state() / "artifacts")
        )
    click.echo(name)
    click.echo(f"continue with `ferrule sessions resume {name[:12]} ...`", err=True)
    return 0


@click.command()
@click.argument("session")
@click.option(
    "--run",
    type=click.IntRange(0),
    required=True,
    help="Go back to the end of this run; 0 is before the first.",
)
@click.option("--dry-run", "dry", is_flag=True, help="Only list what would be restored.")
@click.option("--diff", "shows_diff", is_flag=True, help="Only show the changes, as one diff.")
@click.option("--force", is_flag=True, help="Also restore files that something else has changed.")
@click.option("--yes", is_flag=True, help="Restore without asking.")
def rewind(session: str, run: int, dry: bool, shows_diff: bool, force: bool, yes: bool) -> int:
    """Restore the files that a session's tools and commands changed since a run, and fork it there.

    Files that no tool may touch stay as they are. Exit code 3: some files were left alone.
    """
    artifacts = artifact_files.FileArtifactStore(paths.state() / "artifacts")
    with assemble.open_journal() as store:
        info = store.find(session)
        found = info.session
        scope = artifact_stores.Scope(info.tenant, info.user, info.session)
        if not (dry or shows_diff):
            # Nobody else may run this session meanwhile.
            store.lease(found)
        point = rewinding.plan_rewind(store.records(found), run)
        _, folder = _summarize(store, found)
        if not folder or not Path(folder).is_dir():
            click.echo(f"nothing was done: the session's folder `{folder}` is missing", err=True)
            return 1
        if os.path.realpath(folder) != folder:
            # Commands of a session in the folder above may have put it there.
            click.echo(
                f"nothing was done: the session's folder `{folder}` is, or lies behind, a link now",
                err=True,
            )
            return 1
        with closing(_open_workspace(folder)) as workspace:
            if shows_diff:
                for line in changes.diff_files(point, workspace, artifacts, scope):
                    click.echo(escape_invisible(line))
                return 0
            plan = rewinding.restore_files(
                point, workspace, artifacts, scope, force=force, dry=True
            )
            _print_plan(point, plan)
            if dry:
                return 3 if plan.left_alone else 0
            code = _confirm(len(plan.restored), folder, yes)
            if code != 0:
                return code
            done = rewinding.restore_files(point, workspace, artifacts, scope, force=force)
        name = rewinding.fork(store, found, run, artifacts)
    click.echo(name)
    click.echo(
        f"{len(done.restored)} restored; continue with `ferrule sessions resume {name[:12]} ...`",
        err=True,
    )
    return 3 if done.left_alone else 0


def _open_workspace(folder: str) -> Workspace:
    """Open a folder with the protected names and denied paths of the person's settings."""
    settings = person_settings.load_settings(workspace=folder)
    names = settings.names
    workspace = workspaces.Workspace(folder, names=names)
    gate = rule_evaluation.PermissionGate(settings.rules, root=workspace.root, names=names)
    return workspace.restrict(gate.find_refusal)


def _print_plan(point: rewinding.RewindPoint, plan: rewinding.RestoreReport) -> None:
    for path in plan.restored:
        action = "restore" if point.wanted[path] else "remove"
        click.echo(escape_invisible(f"{action:8} {path}"))
    for path, why in plan.left_alone.items():
        click.echo(escape_invisible(f"leave    {path}: {why}"))
    if point.uncovered:
        click.echo(
            f"{point.uncovered} later calls without a copy may have changed more, which "
            "is not restored",
            err=True,
        )


def _confirm(count: int, folder: str, yes: bool) -> int:
    """Ask the person. Return 0 for yes, else the exit code."""
    if yes:
        return 0
    if not has_terminal():
        click.echo(
            "nothing was done: this needs a confirmation\nhint: run the command again with --yes",
            err=True,
        )
        return 7
    if not click.confirm(escape_invisible(f"restore {count} files in {folder}?"), err=True):
        click.echo("nothing was done", err=True)
        return 1
    return 0
