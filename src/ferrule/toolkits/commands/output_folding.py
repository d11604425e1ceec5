r"""What a terminal would have shown of an output: progress and repetitions in few words.

    fold_output("10%\r100%\nok\n")   -> ("100%\nok\n", "1 overwritten line left out")

Only what a text command of the plain `run_command` answers is folded, which is what models write;
records, files and the output of lists of words, which is what scripts run, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ferrule.core.lazy_patterns import compile_lazily

LEAST_REPEATED = 10
"""A line that follows itself so often is shown once, with the number."""
_CODES = compile_lazily(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"  # the other strings, and codes of two characters
)


def fold_output(text: str) -> tuple[str, str]:
    """Return the text as a terminal would leave it, and what was left out of it; "" if nothing."""
    said: list[str] = []
    if "\x1b" in text:
        text, codes = _CODES.subn("", text)
        said += [_count(codes, "terminal code")] if codes else []
    if "\r" in text:
        text, overwritten = _drop_overwritten(text)
        said += [_count(overwritten, "overwritten line")] if overwritten else []
    lines = list(_count_repeated(text.split("\n")))
    folded = "\n".join(lines)
    repeated = text.count("\n") - folded.count("\n")
    said += [_count(repeated, "repeated line")] if repeated else []
    return folded, f"{', '.join(said)} left out" if said else ""


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _drop_overwritten(text: str) -> tuple[str, int]:
    lines: list[str] = []
    dropped = 0
    for line in text.split("\n"):
        parts = [part for part in line.split("\r") if part]
        # A carriage return before the line feed is the line's end and overwrites nothing.
        lines.append((parts[-1] if parts else "") + ("\r" if line.endswith("\r") else ""))
        dropped += max(0, len(parts) - 1)
    return "\n".join(lines), dropped


def _count_repeated(lines: list[str]) -> Iterator[str]:
    for line, group in groupby(lines):
        number = len(list(group))
        if number < LEAST_REPEATED:
            yield from [line] * number
        else:
            yield line
            yield f"[the line above {number} times]"


_SHOWN_OF_LONG = 6 * 1024
_HEAD_SHARE = 3


def cut_to_lines(text: str, most: int, total: int) -> str:
    """Return a text of at most `most` bytes whole, of a longer one some lines of both its ends.

    The end of an output says more than its beginning and gets two thirds of the room. `total` is
    the number of lines of the whole output, 0 if it is not known.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    first = _SHOWN_OF_LONG // _HEAD_SHARE
    head = data[:first]
    tail = data[-(_SHOWN_OF_LONG - first) :]
    # At a line's border where there is one near; a long line is cut between characters.
    if b"\n" in head:
        head = head[: head.rindex(b"\n") + 1]
    if b"\n" in tail[:-1]:
        tail = tail[tail.index(b"\n") + 1 :]
    shown = head.count(b"\n") + tail.count(b"\n") + (not tail.endswith(b"\n"))
    lines = (total or data.count(b"\n")) - shown
    size = len(data) - len(head) - len(tail)
    what = f"{lines} lines" if lines > 0 else f"{size} bytes"
    before = head.decode("utf-8", "ignore")
    after = tail.decode("utf-8", "ignore")
    return f"{before.removesuffix(chr(10))}\n[... {what} left out ...]\n{after}"
