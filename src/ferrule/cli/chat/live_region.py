"""The live region: the last rows of a terminal, which change while a run works.

Everything above it stays for good and scrolls as usual. A repaint writes only the rows that differ,
in one piece and as one frame where the terminal knows frames (mode 2026), so nothing flickers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len

from ferrule.core.lazy_patterns import compile_lazily

_STYLES = compile_lazily(r"\x1b\[[\d;]*m")
_BEGIN_FRAME, _END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
_ERASE_LINE, _ERASE_BELOW = "\x1b[K", "\x1b[J"


class LiveRegion:
    """Paints rows below everything else.

    Args:
        write: Writes to the terminal.
        size: Returns the terminal's columns and lines.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]]) -> None:
        self._write = write
        self._size = size
        self._rows: list[str] = []

    def paint(self, rows: Sequence[str], above: Sequence[str] = ()) -> None:
        """Show these rows instead of the present ones.

        Args:
            rows: The rows. The first ones are left out if the terminal has fewer lines.
            above: Rows that are finished: they go above the region, for good.
        """
        columns, lines = self._size()
        wanted = list(rows[-max(1, lines - 1) :])
        if wanted == self._rows and not above:
            return
        if not wanted and not above:
            self.erase()
            return
        first = 0
        if not above:
            first = _count_equal(wanted, self._rows)
        parts = [_BEGIN_FRAME, self._go_up(first, columns)]
        new_rows = [*above, *wanted[first:]]
        parts.append("\r\n".join(row + _ERASE_LINE for row in new_rows))
        if above and not wanted:
            parts.append("\r\n")
        parts += [_ERASE_BELOW, _END_FRAME]
        self._rows = wanted
        self._write("".join(parts))

    def erase(self) -> None:
        """Take the region away; the cursor is where its first row began."""
        if self._rows:
            columns, _ = self._size()
            self._write(self._go_up(0, columns) + _ERASE_BELOW)
            self._rows = []

    def _go_up(self, index: int, columns: int) -> str:
        """Return what moves the cursor from the last row to the beginning of a row.

        A row that became wider than the terminal, since that was resized, takes several lines.
        """
        if not self._rows:
            return "\r"
        heights = [max(1, -(-cell_len(_STYLES.sub("", row)) // columns)) for row in self._rows]
        if index >= len(self._rows):
            # Behind the last row: a line of its own.
            return "\r\n"
        up = sum(heights[index:]) - 1
        return f"\r\x1b[{up}A" if up else "\r"


def _count_equal(new: Sequence[str], old: Sequence[str]) -> int:
    """Count the rows at the beginning that stay as they are."""
    count = 0
    for one, other in zip(new, old, strict=False):
        if one != other:
            break
        count += 1
    # Fewer rows than before, and all of them equal: the last one is painted, to erase behind it.
    return min(count, len(new) - 1) if len(new) <= len(old) else count
