"""Print the table: right ends of all output types, by manner and mode, streamed and not."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from ferrule.models.output_modes import OUTPUT_MODES

from .manners import MANNERS
from .play import play
from .types_asked import ASKED


def main() -> int:
    """Play every case. Return 1 if one ended otherwise than it must."""
    began = time.perf_counter()
    ends: Counter[str] = Counter()
    faults: list[str] = []
    click.echo("| manner | " + " | ".join(OUTPUT_MODES) + " |")
    click.echo("|---" * (len(OUTPUT_MODES) + 1) + "|")
    for manner in MANNERS:
        cells: list[str] = []
        for mode in OUTPUT_MODES:
            found = Counter[str]()
            for asked in ASKED:
                for streamed in (False, True):
                    end = play(asked, manner, mode, streamed=streamed)
                    found[end] += 1
                    if end != "right":
                        faults.append(f"{manner.name}, {mode}, {asked.name}: {end}")
            ends += found
            cells.append(f"{found['right']}/{found.total()}")
        click.echo(f"| {manner.name} | {' | '.join(cells)} |")
    seconds = time.perf_counter() - began
    click.echo(
        f"\n{ends.total()} runs of {len(ASKED)} types in {seconds:.0f} s: {ends['right']} right, "
        f"{ends['wrong value']} wrong values"
    )
    for fault in dict.fromkeys(faults):
        click.echo(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
