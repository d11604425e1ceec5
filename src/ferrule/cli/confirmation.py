"""A person's yes to what a command has just shown them: said with `--yes`, or at the terminal."""

from __future__ import annotations

import sys

import click


def agreed(question: str, yes: bool) -> int:
    """0 if the person agrees to what was shown, else the exit code."""
    if yes:
        return 0
    if not sys.stdin.isatty():
        click.echo(
            "not approved: this wants a person's yes\nhint: look at it, then say --yes", err=True
        )
        return 7
    if click.confirm(question, err=True):
        return 0
    click.echo("not approved; nothing changed", err=True)
    return 4
