"""`ferrule trust`: let a folder's own settings, rules and tools take effect, or revoke that."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
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

from .confirmation import has_terminal, show_pages
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
    shown_root = escape_invisible(str(root))
    store = TrustStore()
    if revoke:
        outcome = "is no longer trusted" if store.revoke(root) else "was not trusted"
        click.echo(f"{shown_root} {outcome}", err=True)
        return 0
    snapshot = store.read(root)
    if status:
        click.echo(snapshot.state)
        return 0
    if snapshot.state == "trusted":
        click.echo(f"{shown_root} is trusted", err=True)
        return 0
    is_answered = yes or snapshot.state == "absent"
    text = "\n".join(_describe(store.diff(root), snapshot))
    if text and not show_pages(text, is_answered):
        return 4
    if not is_answered:
        code = _ask_for_trust(shown_root)
        if code != 0:
            return code
    # By digest: only what was shown becomes trusted, even if the files change meanwhile.
    store.trust(root, digest=snapshot.digest)
    click.echo(f"trusted {shown_root}", err=True)
    return 0


def _describe(
    changes: Iterable[ConfigurationChange], snapshot: ConfigurationSnapshot
) -> Iterator[str]:
    """Yield all that a person has to see before they answer."""
    for change in changes:
        yield f"{change.what}: {change.name}"
        yield change.diff or "  (not text: look at the file)"
    modules = find_python_files(snapshot.files.get(PROJECT_FILE, b""))
    in_process = [name for name in modules if name in snapshot.files]
    if in_process:
        yield f"runs in Ferrule's own process, without a sandbox: {', '.join(in_process)}"
    problem = _find_problem(snapshot)
    if problem:
        yield f"commands will not run here with it: {problem}"


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


def _ask_for_trust(shown_root: str) -> int:
    """Ask the person. Return 0 for yes, else the exit code."""
    if not has_terminal():
        click.echo(
            "not trusted: this needs a confirmation, and there is no terminal to ask on\n"
            "hint: review it, then run the command again with --yes",
            err=True,
        )
        return 7
    if not click.confirm(f"trust {shown_root}?", err=True):
        click.echo("not trusted; nothing changed", err=True)
        return 4
    return 0
