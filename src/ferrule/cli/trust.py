"""`ferrule trust`: let a folder's own settings, rules and tools take effect, or revoke that."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from ferrule.core.errors import ConfigError
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import (
    PROJECT_FILE,
    ConfigurationChange,
    ConfigurationSnapshot,
    TrustStore,
    find_python_files,
)

from .confirmation import has_terminal
from .terminal import escape_invisible


@click.command()
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False))
@click.option("--yes", is_flag=True, help="Trust without asking.")
@click.option("--revoke", is_flag=True, help="Revoke the trust.")
@click.option("--status", is_flag=True, help="Only print whether the folder is trusted.")
def trust(folder: str, yes: bool, revoke: bool, status: bool) -> int:
    """Let the settings, rules and tools of FOLDER take effect, by the hash of their content.

    Until a folder is trusted they do nothing. Any change revokes the trust and is shown as a diff.
    """
    root = Path(os.path.realpath(folder))
    store = TrustStore()
    if revoke:
        outcome = "is no longer trusted" if store.revoke(root) else "was not trusted"
        click.echo(f"{root} {outcome}", err=True)
        return 0
    snapshot = store.read(root)
    if status:
        click.echo(snapshot.state)
        return 0
    if snapshot.state == "trusted":
        click.echo(f"{root} is trusted", err=True)
        return 0
    for change in store.diff(root):
        _show(change)
    modules = find_python_files(snapshot.files.get(PROJECT_FILE, b""))
    in_process = [name for name in modules if name in snapshot.files]
    if in_process:
        click.echo(
            f"runs in Ferrule's own process, without a sandbox: {', '.join(in_process)}", err=True
        )
    problem = _find_problem(snapshot)
    if problem:
        click.echo(escape_invisible(f"commands will not run here with it: {problem}"), err=True)
    if snapshot.state != "absent" and not yes:
        code = _ask_for_trust(root)
        if code != 0:
            return code
    # By digest: only what was shown becomes trusted, even if the files change meanwhile.
    store.trust(root, digest=snapshot.digest)
    click.echo(f"trusted {root}", err=True)
    return 0


class _AsTrusted(TrustStore):
    """A store in which one configuration is trusted, to find out what that would mean."""

    def __init__(self, snapshot: ConfigurationSnapshot) -> None:
        super().__init__()
        self._snapshot = replace(snapshot, state="trusted")

    def read(self, workspace: str | Path) -> ConfigurationSnapshot:
        return self._snapshot


def _find_problem(snapshot: ConfigurationSnapshot) -> str:
    """Return what would be wrong with the settings if the configuration was trusted, or ""."""
    if PROJECT_FILE not in snapshot.files:
        return ""
    try:
        load_settings(workspace=snapshot.workspace, trust=_AsTrusted(snapshot))
    except ConfigError as error:
        return str(error)
    return ""


def _ask_for_trust(root: Path) -> int:
    """Ask the person. Return 0 for yes, else the exit code."""
    if not has_terminal():
        click.echo(
            "not trusted: this needs a confirmation, and there is no terminal to ask on\n"
            "hint: review it, then run the command again with --yes",
            err=True,
        )
        return 7
    if not click.confirm(f"trust {root}?", err=True):
        click.echo("not trusted; nothing changed", err=True)
        return 4
    return 0


def _show(change: ConfigurationChange) -> None:
    text = change.diff or "  (not text: look at the file)"
    click.echo(escape_invisible(f"{change.what}: {change.name}\n{text}"), err=True)
