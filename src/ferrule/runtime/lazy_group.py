"""A click group that imports the module of a command when it is called, not when it is listed."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click


def drop_output() -> None:
    """Send further output to nowhere, also at exit: nobody reads it, or it cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class LazyGroup(click.Group):
    """A group whose `table` maps a command's name to its `module:object` and its line of help."""

    def __init__(self, *, table: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(**more)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, name = self._table[cmd_name][0].split(":")
        return getattr(import_module(module), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._table and args[0][:1] != "-":
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self._table, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])

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
