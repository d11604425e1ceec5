"""Sends real changes as edits and patches, with the mistakes of models, and prints what came of them.

    make lab NAME=edits                              # 1,500 of the history, 1,500 of fifty packages
    make lab NAME=edits ARGS="--each 2"              # with two mistakes for each change, by turns
    make lab NAME=edits ARGS="--changes 50 --only 'curly quotes' --show wrong"
    make lab NAME=edits ARGS="--peers 100 --page"    # beside others' editors; into the page
    make lab NAME=edits ARGS="--commit 1a2b3c4d --only none --only 'curly quotes' --page"   # only these rows
    make lab NAME=edits ARGS="--source history --save tests/evals/edit_changes.jsonl"

For each form and mistake: how many landed right, were refused with the right place shown, were
refused without, and landed wrong, which ends the program with 1.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from .changes import Change, save_changes, split_change
from .forms import ALL_IN_ONE, FORMS, ONE_BY_ONE
from .mistakes import MISTAKES, Mistake
from .page import format_row, replace_rows, replace_tables
from .peers import OUTCOMES as PEER_OUTCOMES
from .peers import PEERS, make_environment, send_all
from .sources import from_history, from_packages, resolve_commit
from .trial import OUTCOMES, Outcome, make_case, send_case

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/file-tools.md"
TITLES = ("landed right", "refused, place shown", "refused, not shown", "landed wrong")
PEER_TITLES = ("landed right", "refused", "landed in part", "landed wrong")

Table = dict[str, Counter[str]]
"""Counts by mistake."""


def main() -> int:
    """Send them, print the tables, and write the page if asked to."""
    parser = argparse.ArgumentParser(prog="python -m edits", description=__doc__)
    parser.add_argument("--changes", type=int, default=1500, help="of each source")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", choices=["history", "packages", "both"], default="both")
    parser.add_argument(
        "--packages", type=Path, default=ROOT / "build" / "edits", help="where wheels are kept"
    )
    parser.add_argument("--commit", default="HEAD", help="the last one of the history that is used")
    parser.add_argument(
        "--only",
        action="append",
        choices=[mistake.name for mistake in MISTAKES],
        metavar="MISTAKE",
        help="a mistake by its name; may be repeated",
    )
    parser.add_argument("--form", choices=[*FORMS], help="one form")
    parser.add_argument(
        "--peers", type=int, default=0, help="as many cases of each mistake to others' editors"
    )
    parser.add_argument(
        "--each", type=int, default=0, help="how many mistakes each change gets; 0: all of them"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="write the tables into the page")
    parser.add_argument("--save", type=Path, help="write small changes there, for the tests")
    parser.add_argument("--show", choices=OUTCOMES, help="print edits with this outcome")
    options = parser.parse_args()
    changes = list(_collect(options))
    if options.save:
        save_changes(options.save, changes)
        return 0
    edits = sum(len(change.edits) for change in changes)
    each = f", each plain and with {options.each} of the mistakes" if options.each else ""
    history = f"; the history up to `{resolve_commit(ROOT, options.commit)}`"
    lines = [f"{len(changes):,} changes, {edits:,} edits{each}{history}."]
    parts = [part for change in changes for part in split_change(change)]
    started = time.monotonic()
    mistakes = [each for each in MISTAKES if each.name in (options.only or [each.name])]
    tables: dict[str, Table] = {form: {} for form in FORMS if options.form in (None, form)}
    sent_to_peers: dict[str, list[Change]] = {}
    work = [
        (
            MISTAKES.index(mistake),
            options.seed,
            _choose(mistake, changes, options),
            _choose(mistake, parts, options),
            tuple(tables),
            options.show,
        )
        for mistake in mistakes
    ]
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for mistake, sent in zip(mistakes, pool.imap(_send_all, work), strict=True):
            for form, counts in sent.counts.items():
                tables[form][mistake.name] = counts
            if options.peers:
                rng = random.Random(options.seed)
                some = min(options.peers, len(sent.cases))
                sent_to_peers[mistake.name] = rng.sample(sent.cases, some)
            seconds = time.monotonic() - started
            click.echo(f"{mistake.name}: {len(sent.cases)} cases, {seconds:.0f} s")
    for form, table in tables.items():
        lines += ["", f"### Sent as: {form}", "", *_format_table(mistakes, table, OUTCOMES, TITLES)]
    for peer in PEERS if options.peers else ():
        title = f"### `{peer.package}` {peer.version}, sent as {peer.form}"
        python = make_environment(peer, options.packages / "envs")
        table = {
            name: Counter(outcomes)
            for name, outcomes in send_all(peer, python, sent_to_peers).items()
        }
        click.echo(f"{peer.name}: {time.monotonic() - started:.0f} s")
        lines += ["", title, "", *_format_table(mistakes, table, PEER_OUTCOMES, PEER_TITLES)]
    click.echo("\n".join(lines))
    if options.page:
        replace = replace_rows if options.only or options.form else replace_tables
        PAGE.write_text(replace(PAGE.read_text(), lines))
    wrong = sum(counts["wrong"] for table in tables.values() for counts in table.values())
    return 1 if wrong else 0


@dataclass(frozen=True)
class _Sent:
    """The cases of one mistake, and what came of them by form."""

    cases: list[Change]
    counts: dict[str, Counter[str]]


def _send_all(
    work: tuple[int, int, list[Change], list[Change], tuple[str, ...], str | None],
) -> _Sent:
    index, seed, changes, parts, forms, shown = work
    mistake = MISTAKES[index]
    counts: dict[str, Counter[str]] = {}
    for form in forms:
        sent = _make_cases(mistake, parts if form == ONE_BY_ONE else changes, seed, form)
        outcomes = [send_case(case, form) for case in sent]
        counts[form] = Counter(outcome.kind for outcome in outcomes)
        for outcome in outcomes:
            if outcome.kind == shown:
                _show(outcome)
    cases = _make_cases(mistake, changes, seed, ALL_IN_ONE)
    return _Sent(cases, counts)


def _make_cases(mistake: Mistake, changes: list[Change], seed: int, form: str) -> list[Change]:
    made = (make_case(mistake, change, seed, form) for change in changes)
    return [case for case in made if case is not None]


def _choose(mistake: Mistake, changes: list[Change], options: argparse.Namespace) -> list[Change]:
    """Return the changes that get a mistake: all get none, each gets `options.each` others."""
    if mistake.name == MISTAKES[0].name or options.only or not options.each:
        return changes
    share = options.each / (len(MISTAKES) - 1)
    rng = random.Random(f"{options.seed} {mistake.name}")
    return [change for change in changes if rng.random() < share]


def _format_table(
    mistakes: list[Mistake], table: Table, outcomes: tuple[str, ...], titles: tuple[str, ...]
) -> Iterator[str]:
    yield "| mistake | meant | sent | " + " | ".join(titles) + " |"
    yield "|---|---|" + "--:|" * (1 + len(outcomes))
    total: Counter[str] = Counter()
    for mistake in mistakes:
        counts = table[mistake.name]
        total += counts
        yield format_row([mistake.name, mistake.meant, *_format_counts(counts, outcomes)])
    yield format_row(["all", "", *_format_counts(total, outcomes)])


def _format_counts(counts: Counter[str], outcomes: tuple[str, ...]) -> list[str]:
    return [str(counts.total()), *(str(counts[kind]) for kind in outcomes)]


def _collect(options: argparse.Namespace) -> Iterator[Change]:
    if options.source != "packages":
        history = from_history(ROOT, options.seed, options.commit)
        yield from itertools.islice(history, options.changes)
    if options.source != "history":
        yield from itertools.islice(from_packages(options.packages, options.seed), options.changes)


def _show(outcome: Outcome) -> None:
    click.echo(f"--- {outcome.change.source}, line {min(outcome.change.lines)}: {outcome.detail}")
    for edit in outcome.change.edits:
        click.echo(f"old {edit.old!r}\nnew {edit.new!r}")


if __name__ == "__main__":
    sys.exit(main())
