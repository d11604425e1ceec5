"""Run 219 commands as agents write them, and compare with what a person expects.

make lab NAME=commands                      # all; the table goes into docs/evidence.md
make lab NAME=commands ARGS="--only xargs"  # those with this text, with what they said
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

from .gate import AgentCommand, load_commands
from .trial import Outcome, run_commands

PAGE = Path(__file__).resolve().parents[2] / "docs/evidence.md"
MARK = "<!-- table: made by `make lab NAME=commands` -->"
END = "<!-- end of table -->"
WORDS = {"runs": "ran", "asks": "asked", "host": "asked for the host", "refused": "refused"}


def main() -> int:
    """Run them, print what differs, and write the page if all were run."""
    parser = argparse.ArgumentParser(prog="python -m agent_commands", description=__doc__)
    parser.add_argument("--only", default="", help="commands with this text")
    options = parser.parse_args()
    rows = [row for row in load_commands() if options.only in row.command]
    with tempfile.TemporaryDirectory(
        prefix="agent-commands-",
        dir=Path.home(),  # below the machine's `/tmp` a command would have its own around it
    ) as folder:
        outcomes = asyncio.run(_collect(rows, Path(folder)))
    for outcome in outcomes:
        if options.only or not outcome.is_expected:
            click.echo(f"{outcome.row.expect:8} {outcome.kind:8} {outcome.row.command!r}")
            click.echo(f"    {outcome.said[:400]}")
    differing = [outcome.row for outcome in outcomes if not outcome.is_expected]
    unexplained = sum(not row.known for row in differing)
    click.echo(
        f"{summarise(outcomes)}; {len(differing)} otherwise than expected, "
        f"{unexplained} of them without a known reason"
    )
    if not options.only:
        write_page(outcomes)
    return 1 if unexplained else 0


async def _collect(rows: list[AgentCommand], folder: Path) -> list[Outcome]:
    return [outcome async for outcome in run_commands(rows, folder)]


def summarise(outcomes: list[Outcome]) -> str:
    """Return how many ran, asked and were refused."""
    counts = Counter(outcome.kind for outcome in outcomes)
    return f"{len(outcomes)} commands: " + ", ".join(
        f"{counts[kind]} {word}" for kind, word in WORDS.items()
    )


def write_page(outcomes: list[Outcome]) -> None:
    """Replace the part of the page behind its mark."""
    head, _, rest = PAGE.read_text().partition(MARK)
    lines = [
        MARK,
        "",
        f"{summarise(outcomes)}.",
        "",
        "| command | outcome | why |",
        "|---|---|---|",
    ]
    for outcome in outcomes:
        shown = outcome.row.command.replace("\n", " ⏎ ").replace("|", "\\|").replace("`", "'")
        where = f" (in `{outcome.row.cwd}`)" if outcome.row.cwd else ""
        why = outcome.row.why
        if not outcome.is_expected:
            why = f"expected: {WORDS[outcome.row.expect]}; {outcome.row.known}"
        lines.append(f"| `{shown}`{where} | {WORDS[outcome.kind]} | {why} |")
    PAGE.write_text(head + "\n".join(lines) + f"\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    sys.exit(main())
