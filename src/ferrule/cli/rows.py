"""Rows of a list, for people: names in columns, and a text that fits the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click

from ferrule.core.invisible_characters import escape_invisible

MIN_TEXT = 24
"""Columns below which a text is not wrapped beside what stands before it."""


def print_row(head: str, text: str) -> None:
    """Print a row. At a terminal its text is wrapped beside `head`; a program gets it on one line.

    Args:
        head: The columns before the text, padded.
        text: The last column.
    """
    head = escape_invisible(head)
    text = escape_invisible(text)
    room = shutil.get_terminal_size().columns - len(head) - 1
    lines = [text]
    if sys.stdout.isatty() and room >= MIN_TEXT:
        lines = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    click.echo(f"{head}{lines[0]}".rstrip())
    for line in lines[1:]:
        click.echo(f"{' ' * len(head)}{line}")
