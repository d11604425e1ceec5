r"""What a terminal would have shown of an output: progress and repetitions in few words.

    fold_output("10%\r100%\nok\n")   -> ("100%\nok\n", "1 overwritten line left out")

Only what a text command of the plain `run_command` answers is folded, which is what models write;
records, files and the output of lists of words, which is what scripts run, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

LEAST_REPEATED = 10
"""A line that follows itself so often is shown once, with the number."""
_CODES = re.compile(
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
