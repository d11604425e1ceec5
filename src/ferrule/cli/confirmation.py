"""Show what a command would do, and ask for confirmation: with `--yes`, or at the terminal."""

from __future__ import annotations

import sys

import click

from .terminal import count_columns_of_screen, count_screen_rows, escape_invisible, wrap_lines

_HANGING = 4
"""How far rows are indented that continue a line."""
_QUESTION_ROWS = 3


def has_terminal() -> bool:
    """Whether somebody can type an answer on standard input."""
    return sys.stdin.isatty()


def show_pages(text: str, yes: bool) -> bool:
    """Show what will be asked about on standard error, so that a person sees all of it.

    At a terminal it is wrapped at words, and what is longer than the screen comes page by page.

    Args:
        text: What will be asked about.
        yes: Whether the question is answered already: then nothing waits.

    Returns:
        Whether all was shown. False: the person left before the end.
    """
    shown = escape_invisible(text)
    if yes or not has_terminal() or not sys.stderr.isatty():
        click.echo(shown, err=True)
        return True
    rows = wrap_lines(shown, count_columns_of_screen(), _HANGING)
    while rows:
        # The question and the hint to go on take the others.
        size = max(count_screen_rows() - _QUESTION_ROWS, 1)
        click.echo("\n".join(rows[:size]), err=True)
        rows = rows[size:]
        if rows:
            click.echo(
                f"… {len(rows)} more lines; Enter shows the next, q leaves: ", err=True, nl=False
            )
            if sys.stdin.readline().strip().lower() in ("q", "quit", "n", "no"):
                click.echo("not approved; nothing changed", err=True)
                return False
    return True


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
