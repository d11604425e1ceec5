"""The tables in the page: all of them, or the rows of some mistakes and the sums again."""

from __future__ import annotations

from collections.abc import Sequence

MARK = "<!-- tables: made by `make lab NAME=edits` -->"
_TOTAL = "all"


def replace_tables(page: str, lines: Sequence[str]) -> str:
    """Return the page with these lines in place of its tables."""
    return f"{page.partition(MARK)[0]}{MARK}\n\n" + "\n".join(lines) + "\n"


def replace_rows(page: str, lines: Sequence[str]) -> str:
    """Return the page with the rows of these tables in place of its own, and its sums made again.

    Raises:
        ValueError: The first line, which says of which changes they are, is not the page's.
    """
    made = page.partition(MARK)[2].strip("\n").split("\n")
    if made[0] != lines[0]:
        raise ValueError(f"the rows are of other changes than the page's: {lines[0]} / {made[0]}")
    new = {(title, cells[0]): cells for title, cells in _read_rows(lines) if cells}
    sums: list[int] = []
    written = made[:1]
    for line, (title, cells) in zip(made[1:], _read_rows(made[1:]), strict=True):
        if not cells or not cells[-1].isdigit():
            sums = []
            written.append(line)
            continue
        if cells[0] == _TOTAL:
            cells = [*cells[:2], *map(str, sums)]
        else:
            cells = new.get((title, cells[0]), cells)
            counts = [int(cell) for cell in cells[2:]]
            sums = [sum(pair) for pair in zip(sums, counts, strict=True)] if sums else counts
        written.append(format_row(cells))
    return replace_tables(page, written)


def format_row(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def _read_rows(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return for each line the title above it and its cells, none if it is no row."""
    title = ""
    rows: list[tuple[str, list[str]]] = []
    for line in lines:
        title = line if line.startswith("#") else title
        cells = [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else []
        rows.append((title, cells))
    return rows
