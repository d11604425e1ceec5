"""Sends real changes as edits, plain and with the mistakes of models, and prints what came of them.

    make edits                              # 500 of the history, 500 of ten packages (fetched once)
    make edits ARGS="--changes 50 --only 'curly quotes' --show wrong"
    make edits ARGS="--source history --save tests/evals/edit_changes.jsonl"

For each mistake: how many landed right, were refused with the right place shown, were refused
without, and landed wrong, which ends the program with 1.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from .changes import Change, save_changes
from .mistakes import MISTAKES
from .sources import from_history, from_packages
from .trial import OUTCOMES, Outcome, send

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m edits", description=__doc__)
    parser.add_argument("--changes", type=int, default=500, help="of each source")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", choices=["history", "packages", "both"], default="both")
    parser.add_argument(
        "--packages", type=Path, default=ROOT / "build" / "edits", help="where wheels are kept"
    )
    parser.add_argument("--only", help="one mistake by its name")
    parser.add_argument("--save", type=Path, help="write small changes there, for the tests")
    parser.add_argument("--show", choices=OUTCOMES, help="print edits with this outcome")
    options = parser.parse_args()
    changes = list(_collect(options))
    if options.save:
        save_changes(options.save, changes)
        return 0
    click.echo(f"{len(changes)} changes, {sum(len(change.edits) for change in changes)} edits")
    started = time.monotonic()
    header = ["mistake", "meant", "sent", "right", "refused, shown", "not shown", "WRONG"]
    click.echo(
        "".join(f"{title:>16}" if place else f"{title:32}" for place, title in enumerate(header))
    )
    total: Counter[str] = Counter()
    for mistake in MISTAKES:
        if options.only not in (None, mistake.name):
            continue
        outcomes = [send(mistake, change, options.seed) for change in changes]
        sent = [outcome for outcome in outcomes if outcome is not None]
        counts = Counter(outcome.kind for outcome in sent)
        total += counts
        row = [mistake.meant, len(sent), *(counts[kind] for kind in OUTCOMES)]
        click.echo(f"{mistake.name:32}" + "".join(f"{cell:>16}" for cell in row))
        for outcome in sent:
            if outcome.kind == options.show:
                _show(outcome)
    row = ["", sum(total.values()), *(total[kind] for kind in OUTCOMES)]
    click.echo(f"{'all':32}" + "".join(f"{cell:>16}" for cell in row))
    click.echo(f"{time.monotonic() - started:.0f} s")
    return 1 if total["wrong"] else 0


def _collect(options: argparse.Namespace) -> Iterator[Change]:
    if options.source != "packages":
        yield from itertools.islice(from_history(ROOT, options.seed), options.changes)
    if options.source != "history":
        yield from itertools.islice(from_packages(options.packages, options.seed), options.changes)


def _show(outcome: Outcome) -> None:
    click.echo(f"--- {outcome.change.source}, line {min(outcome.change.lines)}: {outcome.detail}")
    for edit in outcome.change.edits:
        click.echo(f"old {edit.old!r}\nnew {edit.new!r}")


if __name__ == "__main__":
    sys.exit(main())
