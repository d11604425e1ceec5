"""`ferrule trust`: whether this folder's own settings take effect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ferrule.storage.trust import Change


@click.command()
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False))
@click.option("--yes", is_flag=True, help="Trust without asking.")
@click.option("--revoke", is_flag=True, help="Take trust back.")
@click.option("--status", is_flag=True, help="Only say how it stands.")
def trust(folder: str, yes: bool, revoke: bool, status: bool) -> int:
    """Let the settings, rules and tools that FOLDER carries take effect, by the hash of their
    content.

    Until then they do nothing. Any change takes trust away again and is shown as a diff.
    """
    from ferrule.storage.trust import PROJECT_FILE, Trust, python_files

    root = Path(folder).resolve()
    book = Trust()
    if revoke:
        said = "is no longer trusted" if book.revoke(root) else "was not trusted"
        click.echo(f"{root} {said}", err=True)
        return 0
    seen = book.look(root)
    if status:
        click.echo(seen.state)
        return 0
    if seen.state == "trusted":
        click.echo(f"{root} is trusted", err=True)
        return 0
    for change in book.diff(root):
        _show(change)
    named = python_files(seen.files.get(PROJECT_FILE, b""))
    in_process = [name for name in named if name in seen.files]
    if in_process:
        click.echo(
            f"runs in Ferrule's own process, without a sandbox: {', '.join(in_process)}", err=True
        )
    if seen.state != "absent" and not yes:
        if not sys.stdin.isatty():
            click.echo(
                "not trusted: this wants a person's yes\nhint: look at it, then say --yes", err=True
            )
            return 7
        if not click.confirm(f"trust {root}?", err=True):
            click.echo("not trusted; nothing changed", err=True)
            return 4
    # By digest: what was shown is what is trusted, also if the files change meanwhile.
    book.trust(root, digest=seen.digest)
    click.echo(f"trusted {root}", err=True)
    return 0


def _show(change: Change) -> None:
    from .terminal import visible

    text = change.diff or "  (no text to show: look at the file)"
    click.echo(visible(f"{change.what}: {change.name}\n{text}"), err=True)
