"""The output of test runners, compilers and installers, reduced to what a reader acts on.

    reduce_output(text)   -> a `ReducedOutput`, or None where nothing worth it could go

What goes are lines that `output_families` knows as noise, the details of failures after the first
`WHOLE_FAILURES`, and the middle of very long lines; what a checker says of many places is said once
(`equal_diagnostics`). Messages, locations, counts and summaries stay. The caller keeps the whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from .equal_diagnostics import merge_equal
from .output_families import FAMILIES, OutputFamily

MIN_REDUCED = 1500
"""Characters below which an output stays as it is."""
WHOLE_FAILURES = 10
"""Failures of an output that are shown with all details."""
WHOLE_BLOCKS = 3
"""Blocks that tests wrote to the console and that are shown."""
MAX_LINE = 2000
"""Characters of a line that are shown; of a longer one, the beginning and the end."""
_MIN_SAVED = 0.1
_SUMMARY = compile_lazily(r"(?:FAILED|ERROR) \S+?::(\S*?)(?:$| - )")
_TITLE = compile_lazily(r"_{3,} (?:ERROR at (?:setup|teardown) of )?(.+?)(?: _{3,})?$")
_MARK = "[from here on only the message and the location of each failure]"


@frozen
class ReducedOutput:
    """A reduced text, and what was left out of it in words."""

    text: str
    left_out: str


def reduce_output(text: str) -> ReducedOutput | None:
    """Reduce an output to its failures and summaries; None if little could go.

    Args:
        text: An output without terminal codes, as `fold_output` leaves it.
    """
    if len(text) < MIN_REDUCED:
        return None
    lines = text.split("\n")
    said: list[str] = []
    for family in FAMILIES:
        if any(family.evidence.match(line) for line in lines):
            kept = _reduce_family(family, lines)
            if family.step is not None:
                kept = _drop_noise_of_steps(family.step, kept)
            if len(kept) < len(lines):
                said.append(f"{len(lines) - len(kept)} lines of {family.name}")
            lines = kept
    merged = merge_equal(lines)
    if len(merged) < len(lines):
        said.append(f"{len(lines) - len(merged)} lines that differ only in their place")
    lines, cut = _cut_long_lines(merged)
    if cut:
        said.append(f"the middle of {cut} long line{'' if cut == 1 else 's'}")
    reduced = "\n".join(lines)
    if len(reduced) > len(text) * (1 - _MIN_SAVED):
        return None
    return ReducedOutput(reduced, ", ".join(said) + " left out")


def _reduce_family(family: OutputFamily, lines: Sequence[str]) -> list[str]:
    kept: list[str] = []
    block: list[str] = []
    failures = 0
    inside = False
    for line in [*lines, None]:
        starts = line is not None and bool(family.failure.match(line))
        ends = inside and line is not None and bool(family.end.match(line))
        if inside and not (starts or ends) and line is not None:
            block.append(line)
            continue
        kept += _shorten_failure(family, block, failures)
        block = []
        if line is None:
            break
        if starts:
            failures += 1
            block = [line]
        else:
            kept.append(line)
        inside = starts
    return _drop_shown_summaries(_drop_noise(family, kept))


def _shorten_failure(family: OutputFamily, block: list[str], number: int) -> list[str]:
    if not block or number <= WHOLE_FAILURES:
        return block
    first, rest = block[0], block[1:]
    if family.essential is None:
        short = [line for line in rest if not family.detail.match(line)]
    elif any(family.essential.match(line) for line in rest):
        short = [
            line for line in rest if family.essential.match(line) or family.location.match(line)
        ]
    else:
        short = rest
    mark = [_MARK] if number == WHOLE_FAILURES + 1 and len(short) < len(rest) else []
    title = re.sub(r"^_{3,} (.+) _{3,}$", r"___ \1", first)
    return [*mark, title, *(re.sub(r"^E {2,}", "E ", line) for line in short)]


def _drop_noise(family: OutputFamily, lines: Sequence[str]) -> list[str]:
    kept: list[str] = []
    blocks = 0
    in_chatter = False
    for index, line in enumerate(lines):
        if family.chatter.match(line):
            blocks += 1
            in_chatter = blocks > WHOLE_BLOCKS
        elif in_chatter and _ends_chatter(lines, index):
            in_chatter = False
        if in_chatter or (family.noise.match(line) and not _precedes_trouble(family, lines, index)):
            continue
        kept.append(line)
    return kept


def _drop_noise_of_steps(step: re.Pattern[str], lines: Sequence[str]) -> list[str]:
    """Drop what installers that were run said of their progress, each line behind its step."""
    own = {line: line[found.end() :] for line in lines if (found := step.match(line))}
    noise = [
        family.noise
        for family in FAMILIES
        if not family.names_next and any(map(family.evidence.match, own.values()))
    ]
    return [
        line
        for line in lines
        if line not in own or not any(pattern.match(own[line]) for pattern in noise)
    ]


def _ends_chatter(lines: Sequence[str], index: int) -> bool:
    """Whether the block is over: a blank line came before, and no place in the code follows."""
    line = lines[index]
    return bool(line) and not lines[index - 1] and not line.lstrip().startswith("at ")


def _precedes_trouble(family: OutputFamily, lines: Sequence[str], index: int) -> bool:
    """Whether a line of noise, such as a compiler's command, names what follows it."""
    if not family.names_next or index + 1 == len(lines):
        return False
    return bool(lines[index + 1]) and not family.noise.match(lines[index + 1])


def _drop_shown_summaries(lines: list[str]) -> list[str]:
    """Drop pytest's progress and summary lines of failures whose message is shown by name."""
    shown: set[str] = set()
    title = ""
    for line in lines:
        found = _TITLE.match(line)
        title = found.group(1) if found else title
        if title and line.startswith("E "):
            shown.add(title)
    if len(shown) <= WHOLE_FAILURES:
        return lines
    return [line for line in lines if not _repeats(line, shown)]


def _repeats(line: str, shown: set[str]) -> bool:
    found = _SUMMARY.match(line) or re.match(r"\S+?::(.+?) (?:FAILED|ERROR)\b", line)
    return found is not None and found.group(1).replace("::", ".") in shown


def _cut_long_lines(lines: Sequence[str]) -> tuple[list[str], int]:
    short: list[str] = []
    cut = 0
    for line in lines:
        if len(line) > MAX_LINE:
            half = MAX_LINE // 2
            missing = len(line) - 2 * half
            line = f"{line[:half]}[... {missing} of {len(line)} characters ...]{line[-half:]}"
            cut += 1
        short.append(line)
    return short, cut
