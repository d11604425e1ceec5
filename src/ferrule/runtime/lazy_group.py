"""Groups of commands: whole sentences in their help, and modules imported when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click


def drop_output() -> None:
    """Send further output to nowhere, also at exit: nobody reads it, or it cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


_WHOLE = 10_000
"""Characters of a command's first sentence in help: all of them."""
CommandTable = Mapping[str, tuple[str, str]]
"""Commands by name: `module:object`, and one line of help."""


class CommandGroup(click.Group):
    """A group whose help has the first sentence of each command whole, not cut to a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in found
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Args:
        table: The commands.
        find_more: Returns further commands, when they are listed or a name is not in the table.
        check: Called before one of these is imported; raises if it must not be.
        groups: The names of the table by heading, in the order in which help lists them; without
            it they are one list.
        elsewhere: What does the job of a command that other programs have and this one has not.
    """

    def __init__(
        self,
        *,
        table: CommandTable,
        find_more: Callable[[], CommandTable] = dict,
        check: Callable[[str], None] = lambda name: None,
        groups: Mapping[str, Sequence[str]] | None = None,
        elsewhere: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._table = table
        self._find_more = find_more
        self._check = check
        self._elsewhere = elsewhere or {}
        self._groups = groups or {"Commands": tuple(table)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._table, *self._find_more()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._table.get(cmd_name)
        if entry is None:
            entry = self._find_more().get(cmd_name)
            if entry is None:
                return None
            self._check(cmd_name)
        module, name = entry[0].split(":")
        return getattr(import_module(module), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._table and name[:1] != "-" and name not in self._find_more():
            if name in self._elsewhere:
                raise click.UsageError(
                    f"No such command '{name}'. Use {self._elsewhere[name]}", ctx=ctx
                )
            known = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(name, possibilities=known, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in self._groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self._table[name][1]) for name in names])
        more = self._find_more()
        if more:
            with formatter.section("Commands of plugins"):
                formatter.write_dl([(name, text) for name, (_, text) in more.items()])

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with _without_reader():  # `--help` is answered while the words are read
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _without_reader():
            return super().invoke(ctx)


@contextmanager
def _without_reader() -> Generator[None]:
    """End in success where the reader went away (`| head`): click would call it a failure."""
    try:
        yield
    except BrokenPipeError:
        drop_output()
        raise click.exceptions.Exit(0) from None
