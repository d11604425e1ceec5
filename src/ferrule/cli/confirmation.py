"""Ask for confirmation of what a command has just shown: with `--yes`, or at the terminal."""

from __future__ import annotations

import sys

import click


def has_terminal() -> bool:
    """Whether somebody can type an answer on standard input."""
    return sys.stdin.isatty()


def confirm(question: str, yes: bool, otherwise: str = "nothing changed") -> int:
    """Ask a question unless `--yes` answered it. Return 0 for yes, else the exit code.

    Args:
        question: The question.
        yes: Whether it is answered already.
        otherwise: What somebody who says no is told.
    """
    if yes:
        return 0
    if not has_terminal():
        click.echo(
            "not approved: this needs a confirmation, and there is no terminal to ask on\n"
            "hint: review it, then run the command again with --yes",
            err=True,
        )
        return 7
    if click.confirm(question, err=True):
        return 0
    click.echo(f"not approved; {otherwise}", err=True)
    return 4
