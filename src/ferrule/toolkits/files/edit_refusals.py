"""Says why an edit was not made, and what to send instead. No I/O.

Each cause has words of its own: nothing to change, several places, made already, overlapping edits,
unclear indentation, and not found, which shows the most similar lines as they are now.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.models.untrusted_text import escape_untrusted

from . import lines
from .edit_matching import (
    BLANKS,
    MAX_MATCHES,
    Edit,
    Match,
    find_matches,
    fold,
    line_number,
    split_indent,
    strip_numbers,
)

_ESCAPE = compile_lazily(r"\\u([0-9a-f]{4})")
_SIMPLE_ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\'": "'", "\\\\": "\\"}
_SIMPLE_ESCAPE = compile_lazily(r"\\[nt\"'\\]")
_MAX_SEARCHED_LINES = 5000
"""Lines searched for a similar one; the hint is optional and must stay quick."""
_MAX_SHOWN_LINES = 30
_MAX_SHOWN_COLUMNS = 300
_MAX_DIFFERENCES = 3
_MAX_COMPARED_LINES = 200
_MAX_PLACES = 10
_COMMON = 20
"""A line that occurs more often says nothing about where a text is."""


@frozen
class EditName:
    """What an edit and its file are called in messages."""

    where: str
    edit: str

    @property
    def old(self) -> str:
        """The old text: "`old_string`", or "`old_string` of edit 2"."""
        return f"`old_string`{self.edit}"


@frozen
class EditNames:
    """Names the edits of a call: they are numbered if there are several."""

    where: str
    count: int

    def at(self, index: int) -> EditName:
        """Return the name of an edit, counted from 0."""
        return EditName(self.where, f" of edit {index + 1}" if self.count > 1 else "")


def refuse_empty(name: EditName) -> ToolFailed:
    """Return the error for an edit that replaces nothing."""
    return _refusal(
        f"{name.old} is empty; to add text, give a line beside its place as `old_string` and "
        "that line with the text as `new_string`, or use `write_file` for a new file"
    )


def refuse_identical(name: EditName) -> ToolFailed:
    """Return the error for an edit whose texts are the same."""
    return _refusal(f"{name.old} and its `new_string` are the same: there is nothing to change")


def refuse_overlap(first: int, second: int, line: int, where: str) -> ToolFailed:
    """Return the error for two edits, counted from 0, that change the same lines."""
    return _refusal(
        f"edits {first + 1} and {second + 1} both change line {line} of {where}; nothing was "
        "written. Send them as one edit"
    )


def refuse_ambiguous(text: str, found: Sequence[Match], name: EditName) -> ToolFailed:
    """Return the error for an edit that fits at several places, with all of them."""
    numbers = ", ".join(str(match.line) for match in found[:_MAX_PLACES])
    more = " and more" if len(found) > _MAX_PLACES else ""
    loosely = "" if found[0].grade == "exact" else f" ({describe_grade(found[0].grade)})"
    return _refusal(
        f"{name.old} occurs more than once in {name.where}{loosely}, at lines {numbers}{more}; "
        "nothing was written. Add lines around it until it is unique, or pass `replace_all: true`"
        f"{_show_surroundings(text, found)}"
    )


def _show_surroundings(text: str, found: Sequence[Match]) -> str:
    """Show each place with the line before it, which may be what tells them apart."""
    rows = text.split("\n")
    places = [
        _number_rows(rows, max(1, match.line - 1), match.line) for match in found[:_MAX_PLACES]
    ]
    return ":\n" + "\n...\n".join(places)


def refuse_too_many(name: EditName) -> ToolFailed:
    """Return the error for replacing a text everywhere that fits loosely at too many places."""
    return _refusal(
        f"{name.old} does not fit exactly, and loosely more than {MAX_MATCHES} times; nothing was "
        "written. Copy it exactly as it is in the file"
    )


def refuse_applied(text: str, match: Match, name: EditName) -> ToolFailed:
    """Return the error for an edit whose new text is there already."""
    return _refusal(
        f"`new_string`{name.edit} is in {name.where} already, at line {match.line}: this edit was "
        "made before; nothing was written. If it is meant to be there twice, add the lines around "
        "it to `old_string`"
    )


def refuse_unclear_indentation(text: str, match: Match, name: EditName) -> ToolFailed:
    """Return the error for new lines of which it is unclear how far they are indented."""
    line_start = text.rfind("\n", 0, match.start) + 1
    indent, _ = split_indent(text[line_start : match.end])
    rows = text.split("\n")
    return _refusal(
        f"{name.old} begins behind the indentation of line {match.line} of {name.where} "
        f"({_describe_indent(indent)}), so it is unclear how far the lines of `new_string` are "
        "meant to be indented; nothing was written. Begin both with the indentation of the file:"
        f"\n{_number_rows(rows, match.line, match.line)}"
    )


def refuse_missing(text: str, edit: Edit, name: EditName) -> ToolFailed:
    """Return the error for a text that is not there: made already, or the most similar lines."""
    hint = _escape_hint(text, edit.old)
    if hint:
        return _refusal(f"{name.old} was not found in {name.where}{hint}")
    applied = _find_applied(text, edit)
    if applied:
        return _refusal(
            f"{name.old} was not found in {name.where}, and `new_string` is there already, at line "
            f"{applied}: if this edit was made before, there is nothing left to do; nothing was "
            f"written{_show_closest(text, edit, name)}"
        )
    return _refusal(
        f"{name.old} was not found in {name.where}; nothing was written"
        f"{_show_closest(text, edit, name)}"
    )


def describe_grade(grade: str) -> str:
    """Return how a match that is not exact fits, for results and previews."""
    return {
        "line endings": "fits apart from line endings",
        "trailing white space": "fits apart from white space at line ends",
        "look-alikes": (
            "fits apart from characters that look alike, which the new text got from the file too"
        ),
        "indentation": "fits apart from its indentation, which the new text was given too",
        "line numbers": "fits without its line numbers",
    }.get(grade, "fits exactly")


def _find_applied(text: str, edit: Edit) -> int:
    """Return the line where the new text is, 0 if it is nowhere or says too little."""
    old_lines = {line.strip() for line in edit.old.splitlines()}
    adds = any(line.strip() and line.strip() not in old_lines for line in edit.new.splitlines())
    # Few characters are somewhere in any file.
    if not adds or len(edit.new.strip()) < 8:
        return 0
    found = find_matches(text, Edit(edit.new, ""))
    return found[0].line if len(found) == 1 else 0


def _escape_hint(text: str, old: str) -> str:
    """Return a hint where text and `old` spell a character differently.

    Models see some characters as escapes (see `models.untrusted_text`), and sometimes escape twice.
    """
    decoded = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), old)
    decoded = decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if decoded != old and decoded in text:
        return (
            f"; at line {line_number(text, text.find(decoded))} the file has the characters that "
            "`old_string` spells as escapes: in the "
            "arguments, which are JSON, write these escapes with one backslash, in `new_string` too"
        )
    spelled = escape_untrusted(old)
    if spelled != old and spelled in text:
        return (
            f"; at line {line_number(text, text.find(spelled))} the file has these escapes as "
            "text: in the arguments, which are JSON, "
            "write their backslashes twice, in `new_string` too"
        )
    simple = _SIMPLE_ESCAPE.sub(lambda match: _SIMPLE_ESCAPES[match[0]], old)
    if old.endswith(("\\n", "\\n\n")):
        # A line of a patch ends by itself, behind the newline that it spells.
        simple = simple.rstrip("\n")
    found = find_matches(text, Edit(simple, "")) if simple != old and simple.strip() else []
    if found:
        return (
            f"; at line {found[0].line} the file has it with the characters that `old_string` "
            'spells as escapes (`\\n`, `\\t`, `\\"`): in the arguments, which are JSON, write '
            "them with one backslash, in `new_string` too; nothing was written"
        )
    return ""


def _show_closest(text: str, edit: Edit, name: EditName) -> str:
    """Show the most similar lines as they are, what differs, and what to send."""
    old = strip_numbers(edit.old.replace("\r\n", "\n"))[1]
    wanted = old.strip("\n").split("\n")
    rows = [row.removesuffix("\r") for row in text.split("\n")]
    first = _find_closest(rows, wanted)
    if first is None:
        return ". No line of it is similar to one of the file: read the file again"
    last = min(first + len(wanted), len(rows))
    first = max(first, 0)
    shown_to = min(last, first + _MAX_SHOWN_LINES)
    cut = "" if shown_to == last else f"\n[lines {shown_to + 1}-{last} are not shown]"
    differences = list(_list_differences(rows[first:last], wanted, first))
    more = len(differences) - _MAX_DIFFERENCES
    rest = f"\n- and {more} more" if more > 0 else ""
    return (
        f". The most similar lines:\n"
        f"{_number_rows(rows, first + 1, shown_to)}{cut}\n"
        f"What differs:\n{chr(10).join(differences[:_MAX_DIFFERENCES])}{rest}\n"
        "Call `edit_file` again with them, without the numbers"
    )


def _find_closest(rows: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return where, from 0, the lines of a text would begin if most of its lines fitted."""
    places: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        places.setdefault(fold(row).strip(), []).append(number)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(wanted):
        key = fold(line).strip()
        found = places.get(key, []) if key else []
        for number in found if len(found) <= _COMMON else ():
            # Rare and long lines say more about the place than common and short ones.
            votes[number - offset] += (1 + min(len(key), 40)) * 100 // len(found)
    if votes:
        return max(votes, key=lambda first: (votes[first], -first))
    longest = max(range(len(wanted)), key=lambda number: len(wanted[number].strip()))
    candidates = [fold(row).strip()[:_MAX_SHOWN_COLUMNS] for row in rows[:_MAX_SEARCHED_LINES]]
    sought = fold(wanted[longest]).strip()[:_MAX_SHOWN_COLUMNS]
    near = difflib.get_close_matches(sought, candidates, n=1, cutoff=0.5) if sought else []
    return candidates.index(near[0]) - longest if near else None


def _list_differences(rows: Sequence[str], wanted: Sequence[str], first: int) -> Iterator[str]:
    rows = rows[:_MAX_COMPARED_LINES]
    wanted = wanted[:_MAX_COMPARED_LINES]
    matcher = difflib.SequenceMatcher(None, rows, wanted, autojunk=False)
    for tag, start, stop, own_start, own_stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        paired = min(stop - start, own_stop - own_start)
        for offset in range(paired):
            yield _describe_difference(
                rows[start + offset], wanted[own_start + offset], first + start + offset + 1
            )
        for number in range(start + paired, stop):
            yield f"- line {first + number + 1} is not in `old_string`: {_quote(rows[number])}"
        for line in wanted[own_start + paired : own_stop]:
            yield f"- `old_string` has {_quote(line)}, which is not there"


def _describe_difference(row: str, line: str, number: int) -> str:
    row_indent, row_rest = split_indent(row)
    indent, rest = split_indent(line)
    if row_rest == rest:
        return (
            f"- line {number} begins with {_describe_indent(row_indent)}, in `old_string` with "
            f"{_describe_indent(indent)}"
        )
    if row.rstrip(BLANKS) == line.rstrip(BLANKS):
        return f"- line {number} has other white space at its end than in `old_string`"
    return f"- line {number} is {_quote(row)}, in `old_string` {_quote(line)}"


def _describe_indent(indent: str) -> str:
    counts = Counter(indent)
    parts = [
        f"{counts[character]} {word}{'s' if counts[character] > 1 else ''}"
        for character, word in (("\t", "tab"), (" ", "space"))
        if counts[character]
    ]
    return " and ".join(parts) or "no white space"


def _number_rows(rows: Sequence[str], first: int, last: int) -> str:
    return lines.number_lines((_cut(row) for row in rows[first - 1 : last]), first)


def _quote(line: str) -> str:
    return f"`{_cut(line)}`"


def _cut(line: str) -> str:
    line = line.removesuffix("\r")
    if len(line) <= _MAX_SHOWN_COLUMNS:
        return line
    return f"{line[:_MAX_SHOWN_COLUMNS]}[{len(line) - _MAX_SHOWN_COLUMNS} more characters]"


def _refusal(message: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, message)
