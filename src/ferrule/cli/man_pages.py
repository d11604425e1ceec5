"""`ferrule man FOLDER`: manual pages made from the help of the commands.

They are made on the machine where they are read, so they have the commands of its plugins, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from ferrule._version import __version__

from .root import ferrule

SECTION = "1"
_WIDTH = 78


@click.command()
@click.argument(
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("~/.local/share/man/man1"),
)
def man(folder: Path) -> None:
    """Write the manual pages into FOLDER (default: ~/.local/share/man/man1).

    A page for each command: `man ferrule`, `man ferrule-run`.

    \b
    Examples:
      ferrule man
      ferrule man /usr/local/share/man/man1
    """  # noqa: D301  click reads the mark
    folder = folder.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    pages = dict(make_pages(ferrule, click.Context(ferrule, info_name="ferrule")))
    for name, text in pages.items():
        (folder / f"{name}.{SECTION}").write_text(text, encoding="utf-8")
    click.echo(f"{len(pages)} pages in {folder}", err=True)


def make_pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the name and the text (roff) of the page of a command, and of those below it."""
    yield context.command_path.replace(" ", "-"), _make_page(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from make_pages(found, click.Context(found, context, info_name=name))


def _make_page(command: click.Command, context: click.Context) -> str:
    path = context.command_path
    name = path.replace(" ", "-")
    # One help for the terminal and for the page: what it lays out stays as it is.
    context.terminal_width = _WIDTH
    usage, _, rest = command.get_help(context).partition("\n\n")
    summary = command.get_short_help_str(10_000).rstrip(".")
    parts = [
        f'.TH {_quote(name.upper())} {SECTION} "" {_quote(f"Ferrule {__version__}")} "Ferrule"',
        ".SH NAME",
        f"{_escape(name)} \\- {_escape(summary)}",
        ".SH SYNOPSIS",
        ".nf",
        _escape(re.sub(r"^Usage: ", "", usage)),
        ".fi",
        ".SH DESCRIPTION",
        ".nf",
        _escape(rest),
        ".fi",
    ]
    if context.parent is not None:
        above = context.parent.command_path.replace(" ", "-")
        parts += [".SH SEE ALSO", f".BR {_escape(above)} ({SECTION})"]
    return "\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """Return text that roff sets as it is: no escapes, and no line that is a request."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", shown, flags=re.MULTILINE)


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
