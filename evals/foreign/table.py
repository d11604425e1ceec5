"""Put the tables of real runs into the page about foreign material."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/evidence.md"


def write_table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    """Replace the table between the marks of its name; `note` is the sentence above it."""
    lines = [note, "", _row(head), _row(["---"] * len(head)), *map(_row, rows)]
    text = PAGE.read_text()
    begin, end = f"<!-- {name}: made by `make lab NAME=foreign` -->\n", f"<!-- end of {name} -->"
    before, mark, rest = text.partition(begin)
    _, end_mark, after = rest.partition(end)
    if not mark or not end_mark:
        raise SystemExit(f"{PAGE} has no place for the table `{name}`")
    PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after)


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"
