"""Print the tables: right ends of all output types, by manner and mode, streamed and not.

The first is of a scripted model in this process. The second is of one server, which Ferrule, Pydantic
AI and Instructor ask, each in an environment of its own.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from ferrule.models.output_modes import OUTPUT_MODES

from .manners import MANNERS
from .peers import compare
from .play import play
from .types_asked import ASKED


@click.command()
@click.option("--alone", is_flag=True, help="Without the peers: nothing is installed.")
@click.option("--every", default=1, help="Each n-th case of the table with the peers.")
def main(alone: bool, every: int) -> None:
    """Play every case. Exit with 1 if one of Ferrule's ended otherwise than it must."""
    is_right = play_all()
    if not alone:
        table, ends = compare(every)
        click.echo(f"\n{table}")
        is_right = is_right and set(ends) == {"right"}
    sys.exit(0 if is_right else 1)


def play_all() -> bool:
    """Play every case in this process. Return whether all ended as they must."""
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
    return not faults


if __name__ == "__main__":
    main()
