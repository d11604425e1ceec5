"""Print the tables: right ends of all output types, by manner and mode, streamed and not.

The first is of a scripted model in this process. The second is of one server, which Ferrule, Pydantic
AI and Instructor ask, each in an environment of its own; `--write` puts it on its page.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import click

from ferrule.models.output_modes import OUTPUT_MODES

from .manners import MANNERS
from .peers import compare, describe_faults, format_table, is_all_right
from .play import play
from .types_asked import ASKED

PAGE = Path(__file__).resolve().parents[2] / "docs/evidence.md"


@click.command()
@click.option("--alone", is_flag=True, help="Without the peers: nothing is installed.")
@click.option("--every", default=1, help="Each n-th case of the table with the peers.")
@click.option("--write", is_flag=True, help="Put the table with the peers on its page.")
def main(alone: bool, every: int, write: bool) -> None:
    """Play every case. Exit with 1 if one of Ferrule's ended otherwise than it must."""
    is_right = play_all()
    if not alone:
        figures = compare(every)
        table = format_table(figures)
        click.echo(f"\n{table}\n\n{describe_faults(figures)}")
        if write:
            write_table(table)
        is_right = is_right and is_all_right(figures["ferrule"])
    sys.exit(0 if is_right else 1)


def write_table(table: str) -> None:
    """Put the table between its marks on the page of evidence."""
    text = PAGE.read_text(encoding="utf-8")
    begin = text.index("-->\n", text.index("<!-- outputs:")) + len("-->\n")
    end = text.index("<!-- end of outputs -->")
    PAGE.write_text(f"{text[:begin]}\n{table}\n\n{text[end:]}", encoding="utf-8")


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
