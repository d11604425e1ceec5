"""Writes the new text of an edit as the file has it, where the old text fits loosely. No I/O.

A model that copied a text with another indentation, or with typographic quotes, writes the new text
the same way. So the edit is read as the difference between its old and its new text, and that
difference is applied to what the file has: lines and parts of lines that the edit keeps stay as
they are, byte for byte, and what it adds gets the indentation, line ends and plain characters of
the place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from ferrule.core.value_class import frozen

from . import lines
from .edit_matching import BLANKS, LOOKALIKES, Match, Shift, fold, split_indent

_MAX_PAIRED_LINES = 20
"""Most lines of a changed block in which each new line is paired with the most similar old one."""
_MAX_SIMILAR_CHARACTERS = 300
_MAX_COMPARED_CHARACTERS = 1000
_MAX_EXACT_LINES = 2000
"""Lines above which the comparison passes over the most common ones, to stay quick."""
_SIMILAR = 0.5


def write_replacement(text: str, match: Match) -> str | None:
    """Return what takes the place of a match, None if that would have to be guessed.

    This is so if the indentation can be read in several ways that lead to different texts, if a new
    line would be indented less than not at all, or if nothing shows whether a typographic character
    in a new line is meant.
    """
    if match.grade == "exact":
        return match.new
    if match.shifts and _has_other_indentation(text, match):
        return None
    results = {_carry_over(text, match, shift) for shift in match.shifts or (None,)}
    return results.pop() if len(results) == 1 else None


@frozen
class _Habits:
    """What the edit's old text does that the file does not: so it is undone in what is added.

    `made_plain` maps characters; those of `unclear` may be meant or not.
    """

    adds_blanks: bool
    made_plain: dict[int, str]
    unclear: frozenset[str]


def _has_other_indentation(text: str, match: Match) -> bool:
    """Return whether the new text may be indented as the file is, although the old text is not.

    The lines that both texts have, once each, show whether both are indented alike; where there is
    none, nothing does.
    """
    if not any(shift.columns for shift in match.shifts) or not match.new.strip():
        return False
    old = _unique_lines(match.old)
    new = _unique_lines(match.new)
    found = _unique_lines(text[match.start : match.end])
    kept = old.keys() & new.keys()
    if any(new[content] != old[content] and new[content] == found[content] for content in kept):
        return True
    return not any(new[content] == old[content] for content in kept)


def _unique_lines(text: str) -> dict[str, str]:
    """Map the content of each line that is not blank and occurs once to its indentation."""
    lines_found = [split_indent(fold(line)) for line in text.split("\n")]
    counts = Counter(content for _, content in lines_found)
    return {content: indent for indent, content in lines_found if content and counts[content] == 1}


def _carry_over(text: str, match: Match, shift: Shift | None) -> str | None:
    old = match.old.split("\n")
    new = match.new.split("\n")
    found = text[match.start : match.end].split("\n")
    # `found` and `old` have the same number of lines: that is what a match is.
    ends = ["\r\n" if line.endswith("\r") else "\n" for line in found[:-1]] + [""]
    found = [line.removesuffix("\r") for line in found]
    default_end = lines.detect_line_ending(text)
    habits = _find_habits(text, old, found)
    written: list[str] = []
    for position, (line, partner) in enumerate(_pair(old, new)):
        end = default_end if position < len(new) - 1 else ""
        if partner is not None and line == old[partner]:
            written.append(found[partner] + ((ends[partner] or end) if end else ""))
            continue
        if position == len(new) - 1 and not line.strip() and shift is None:
            # Behind the last newline blanks begin a line.
            written.append(line)
            continue
        kept = None if partner is None else (old[partner], found[partner])
        carried = _carry_line(line, kept, habits, shift)
        if carried is None:
            return None
        written.append(carried + end)
    return "".join(written)


def _pair(old: list[str], new: list[str]) -> Iterator[tuple[str, int | None]]:
    """Yield each new line with the number of the old line that it keeps or changes, if any."""
    old_keys = [fold(line) for line in old]
    new_keys = [fold(line) for line in new]
    is_long = max(len(old), len(new)) > _MAX_EXACT_LINES
    matcher = SequenceMatcher(None, old_keys, new_keys, autojunk=is_long)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(new[new_first:new_last], range(first, last), strict=True)
        elif tag != "delete":
            partners = _pair_similar(old_keys, new_keys[new_first:new_last], first, last)
            yield from zip(new[new_first:new_last], partners, strict=True)


def _pair_similar(old: list[str], new: list[str], first: int, last: int) -> Iterator[int | None]:
    """Yield for each changed line the old line from which it was made, in order."""
    for line in new:
        best = None
        if last - first <= _MAX_PAIRED_LINES and len(new) <= _MAX_PAIRED_LINES:
            ratios = [(_similarity(old[number], line), -number) for number in range(first, last)]
            best = max(ratios, default=None)
        if best is None or best[0] < _SIMILAR:
            yield None
            continue
        yield -best[1]
        first = 1 - best[1]


def _similarity(one: str, other: str) -> float:
    if not one.strip() or not other.strip():
        return 0.0
    cut = _MAX_SIMILAR_CHARACTERS
    return SequenceMatcher(None, one.strip()[:cut], other.strip()[:cut], autojunk=False).ratio()


def _find_habits(text: str, old: list[str], found: list[str]) -> _Habits:
    adds_blanks = False
    made_plain: dict[int, str] = {}
    for ours, theirs in zip(old, found, strict=True):
        ours_content = split_indent(ours)[1].rstrip(BLANKS)
        theirs_content = split_indent(theirs)[1].rstrip(BLANKS)
        adds_blanks = adds_blanks or (
            ours != ours.rstrip(BLANKS) and theirs == theirs.rstrip(BLANKS)
        )
        # A no-break space at either end changes the length; such a line shows nothing.
        for mine, plain in zip(ours_content, theirs_content, strict=False):
            if mine != plain and LOOKALIKES.get(ord(mine)) == plain:
                made_plain[ord(mine)] = plain
    kinds = {"'\"" if plain in "'\"" else plain for plain in made_plain.values()}
    alike = {
        code: plain for code, plain in LOOKALIKES.items() if any(plain in kind for kind in kinds)
    }
    unclear = frozenset(
        chr(code)
        for code in LOOKALIKES
        if chr(code) in text or (code not in made_plain and code not in alike)
    )
    return _Habits(adds_blanks, {**alike, **made_plain}, unclear if made_plain else frozenset())


def _carry_line(
    line: str, kept: tuple[str, str] | None, habits: _Habits, shift: Shift | None
) -> str | None:
    """Return a new or changed line as the file would have it; `kept` is (old line, file's line)."""
    content = line.rstrip(BLANKS)
    blanks = _carry_blanks(line, kept) if habits.adds_blanks else _trailing_blanks(line)
    if blanks is None or not content:
        return blanks
    indent = ""
    if shift is not None:
        own_indent, content = split_indent(content)
        shifted = shift.apply(own_indent)
        if shifted is None:
            return None
        indent = shifted
    if kept is None:
        plain = _make_plain(content, habits)
        return None if plain is None else indent + plain + blanks
    ours, theirs = (one.rstrip(BLANKS) for one in kept)
    if shift is not None:
        ours = split_indent(ours)[1]
        theirs = split_indent(theirs)[1]
    carried = _carry_characters(ours, theirs, content, habits)
    return None if carried is None else indent + carried + blanks


def _carry_blanks(line: str, kept: tuple[str, str] | None) -> str | None:
    """Return the blanks at the end of a line of an edit that adds blanks which mean nothing.

    None if they are neither those of the file's line nor left out, where that line has some.
    """
    if kept is None or fold(line).strip() != fold(kept[0]).strip():
        return ""
    blanks = _trailing_blanks(line)
    of_file = _trailing_blanks(kept[1])
    if blanks in ("", of_file):
        return blanks
    return None if of_file else ""


def _trailing_blanks(line: str) -> str:
    return line[len(line.rstrip(BLANKS)) :].replace("\r", "")


def _make_plain(added: str, habits: _Habits) -> str | None:
    if habits.unclear.intersection(added):
        return None
    return added.translate(habits.made_plain)


def _carry_characters(ours: str, theirs: str, content: str, habits: _Habits) -> str | None:
    """Apply the difference between `ours` and `content` to `theirs`, the file's form of `ours`."""
    if ours == theirs and not habits.made_plain:
        return content
    is_comparable = max(len(ours), len(content)) <= _MAX_COMPARED_CHARACTERS
    if len(ours) != len(theirs) or not is_comparable:
        return _make_plain(content, habits)
    written: list[str] = []
    matcher = SequenceMatcher(None, ours, content, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag == "equal":
            written.append(theirs[first:last])
            continue
        added = _make_plain(content[new_first:new_last], habits)
        if added is None:
            return None
        written.append(added)
    return "".join(written)
