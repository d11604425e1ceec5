"""Exact matching with Python's `re`, in a process that can be ended (`toolkits.search.matcher`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.toolkits.process import frame, run_script

from .matcher import EXIT_STUCK
from .pattern import Pattern

_MATCHER = Path(__file__).with_name("matcher.py")


@frozen
class Hit:
    """A line that matches: `number` from 1, `start` the first matching character."""

    number: int
    start: int


async def match_contents(
    pattern: Pattern, contents: Sequence[bytes], *, wanted: int, directory: int, timeout: float
) -> list[list[Hit]]:
    """Return the hits in each content.

    Args:
        pattern: What to look for.
        contents: Contents of files.
        wanted: Most hits in all.
        directory: Descriptor of the folder that the process runs in.
        timeout: Seconds for all contents.

    Returns:
        The hits by content. Shorter than `contents` if time ran out, or one line took more than
        `matcher.SECONDS_PER_LINE`: then the next content is the one that took too long.
    """
    pieces = [
        frame(pattern.expression.encode()),
        b"i" if pattern.ignore_case else b"-",
        wanted.to_bytes(4, "big"),
        *map(frame, contents),
    ]
    lines, ended = await run_script(_MATCHER, pieces, directory=directory, timeout=timeout)
    if ended.exit_code not in (0, EXIT_STUCK) and not ended.timed_out:
        how = ended.signal or ended.exit_code
        raise ToolFailed(
            ErrorType.INTERNAL_ERROR, f"the search stopped: its matcher ended early ({how})"
        )
    return [[_hit(word) for word in line.split()] for line in lines]


def _hit(word: bytes) -> Hit:
    number, _, start = word.partition(b":")
    return Hit(int(number), int(start))
