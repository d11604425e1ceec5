"""Show how far the download of a model has come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import click


@contextmanager
def show_progress(name: str) -> Generator[Callable[[int, int], None]]:
    """Draw a bar on standard error while the block downloads.

    The block calls what it is given with the bytes that arrived, and with all that there are, 0 if
    nobody knows.
    """
    with click.progressbar(length=100, label=f"downloading {name}", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            percent = int(done * 100 / total) if total else bar.pos
            bar.update(max(0, percent - bar.pos))

        yield progress
