"""The mistakes that models make in edits, each as a function that spoils a change.

A mistake returns None where it cannot be made: there is nothing to indent, no quote to bend. What
the model copied wrongly it writes wrongly in the new text as well, but for those whose name says
that only the old text has it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ferrule.toolkits.files.edit_matching import Edit

from .changes import Change, find_lines

LANDS = "lands"
REFUSED = "refused"
Spoil = Callable[[random.Random, Change], Change | None]


@dataclass(frozen=True)
class Mistake:
    """A mistake, and what must become of it: `lands`, or `refused` with the place shown.

    Where `refused` is meant, an edit that lands right does no harm.
    """

    name: str
    spoil: Spoil
    meant: str = LANDS
    prepare: Spoil = lambda rng, change: change
    """Makes another kind of file of it first, with an edit that fits."""


def _on_texts(function: Callable[[random.Random, str], str], *, only_old: bool = False) -> Spoil:
    """Return a mistake that is made in every edit of a change."""

    def spoil(rng: random.Random, change: Change) -> Change | None:
        seed = rng.random()
        edits = tuple(
            Edit(
                function(random.Random(seed), edit.old),
                edit.new if only_old else function(random.Random(seed), edit.new),
            )
            for edit in change.edits
        )
        # Where no copied text changed the model made no mistake in copying.
        if any(
            one.old == other.old or (not only_old and one.new == other.new != "")
            for one, other in zip(edits, change.edits, strict=True)
        ):
            return None
        return replace(change, edits=edits)

    return spoil


def _each_line(function: Callable[[str], str]) -> Callable[[random.Random, str], str]:
    def on_text(rng: random.Random, text: str) -> str:
        return "\n".join(function(line) if line.strip() else line for line in text.split("\n"))

    return on_text


def _reindents(edit: Edit) -> bool:
    """Return whether an edit moves a line to another column."""
    old = {line.strip(): line for line in edit.old.split("\n")}
    return any(line != old.get(line.strip(), line) for line in edit.new.split("\n"))


def _in_old_only(function: Callable[[random.Random, str], str]) -> Spoil:
    """Return a wrong indentation of the old text; not of edits that are about indentation."""
    spoil = _on_texts(function, only_old=True)
    return lambda rng, change: None if any(map(_reindents, change.edits)) else spoil(rng, change)


def _dedent(width: int) -> Callable[[random.Random, str], str]:
    def on_text(rng: random.Random, text: str) -> str:
        parts = text.split("\n")
        if any(line.strip() and not line.startswith(" " * width) for line in parts):
            return text
        return "\n".join(line.removeprefix(" " * width) for line in parts)

    return on_text


def _use_tabs(line: str) -> str:
    content = line.lstrip(" ")
    width = len(line) - len(content)
    return "\t" * (width // 4) + " " * (width % 4) + content


def _use_spaces(line: str) -> str:
    content = line.lstrip("\t")
    return "    " * (len(line) - len(content)) + content


def _add_blanks(rng: random.Random, text: str) -> str:
    parts = text.split("\n")
    return "\n".join(
        line + " " * rng.randint(1, 3) if line and rng.random() < 0.5 else line for line in parts
    )


def _bend_quotes(rng: random.Random, text: str) -> str:
    text = re.sub(r'(?<=\w)"|"(?=[\s.,;:)\]])', "”", text)
    return re.sub(r"(?<=\w)'", "’", text).replace('"', "“").replace("'", "‘")


def _typeset(rng: random.Random, text: str) -> str:
    return text.replace(" - ", " – ").replace(", ", ",\xa0")


def _number(change: Change, template: str, *, only_old: bool) -> Change | None:
    edits: list[Edit] = []
    for edit in change.edits:
        first = change.before.count("\n", 0, change.before.find(edit.old)) + 1
        new = edit.new if only_old else _number_lines(edit.new, first, template)
        edits.append(Edit(_number_lines(edit.old, first, template), new))
    return replace(change, edits=tuple(edits))


def _number_lines(text: str, first: int, template: str) -> str:
    if not text:
        # An edit that deletes writes no line, so there is none to number.
        return text
    parts = text.removesuffix("\n").split("\n")
    rows = [template.format(number) + line for number, line in enumerate(parts, first)]
    return "\n".join(rows) + "\n" * text.endswith("\n")


def _on_file(function: Callable[[str], str], *, in_edits: bool) -> Spoil:
    """Return the same change in another kind of file; the edits know it or not."""

    def spoil(rng: random.Random, change: Change) -> Change | None:
        before = function(change.before)
        if before == change.before:
            return None
        edits = change.edits
        if in_edits:
            edits = tuple(Edit(function(edit.old), function(edit.new)) for edit in edits)
        return replace(change, before=before, after=function(change.after), edits=edits)

    return spoil


def _drop_last_newline(text: str) -> str:
    return text.removesuffix("\n")


def _lose_newline(rng: random.Random, change: Change) -> Change | None:
    if not change.before.endswith(change.edits[-1].old) or not change.after.endswith("\n"):
        return None
    if not change.before.removesuffix("\n").strip() or change.edits[-1].new in ("", "\n"):
        return None
    return replace(
        change,
        before=_drop_last_newline(change.before),
        after=_drop_last_newline(change.after),
    )


def _kept_lines(edit: Edit) -> list[int]:
    """Return the numbers of non-blank lines that the edit keeps, its context."""
    new = edit.new.split("\n")
    return [
        number
        for number, line in enumerate(edit.old.split("\n"))
        if line.strip() and new.count(line) == 1 and edit.old.split("\n").count(line) == 1
    ]


def _miss_line(rng: random.Random, change: Change) -> Change | None:
    """Leave out a line of the middle, in both texts."""
    old = change.edits[0].old.split("\n")
    inner = [n for n in _kept_lines(change.edits[0]) if 0 < n < len(old) - 2]
    if not inner:
        return None
    missed = old[rng.choice(inner)]
    old.remove(missed)
    new = change.edits[0].new.split("\n")
    new.remove(missed)
    return replace(change, edits=(Edit("\n".join(old), "\n".join(new)), *change.edits[1:]))


def _use_stale_line(rng: random.Random, change: Change) -> Change | None:
    """Copy a line as it was in an older version, in both texts."""
    kept = [
        n
        for n in _kept_lines(change.edits[0])
        if re.search(r"\w{3}", change.edits[0].old.split("\n")[n])
    ]
    if not kept:
        return None
    old = change.edits[0].old.split("\n")
    line = old[rng.choice(kept)]
    stale = re.sub(r"\w{3,}", lambda word: f"old_{word[0]}", line, count=1)
    spoiled = Edit(
        change.edits[0].old.replace(line, stale, 1), change.edits[0].new.replace(line, stale, 1)
    )
    return replace(change, edits=(spoiled, *change.edits[1:]))


def _fits_again(edit: Edit, after: str) -> bool:
    """Return whether what is left has, exactly, what the edit replaces: then it may be meant."""
    return after.count(edit.old) == 1 and edit.old not in edit.new


def _apply_before(rng: random.Random, change: Change) -> Change | None:
    if any(_fits_again(edit, change.after) for edit in change.edits):
        return None
    return replace(
        change,
        before=change.after,
        lines=find_lines(change.after, [edit.new for edit in change.edits]),
    )


def _apply_first_before(rng: random.Random, change: Change) -> Change | None:
    """The first of several edits was made by a call before."""
    if len(change.edits) < 2:
        return None
    before = change.before.replace(change.edits[0].old, change.edits[0].new)
    if _fits_again(change.edits[0], before):
        return None
    return replace(change, before=before, lines=find_lines(before, [change.edits[0].new]))


def _escape_newlines(rng: random.Random, text: str) -> str:
    return text.replace("\n", "\\n")


def _lack_context(rng: random.Random, change: Change) -> Change | None:
    """Send only the lines that change, where they occur more than once."""
    if len(change.edits) != 1:
        return None
    old = change.edits[0].old.splitlines(keepends=True)
    new = change.edits[0].new.splitlines(keepends=True)
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    text = "".join(old)
    if not text.strip() or change.before.count(text) < 2:
        return None
    return replace(change, edits=(Edit(text, "".join(new)),))


def _to_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _to_tabs(text: str) -> str:
    return "\n".join(_use_tabs(line) for line in text.split("\n"))


_WITH_TABS = _on_file(_to_tabs, in_edits=True)
MISTAKES = (
    Mistake("none", lambda rng, change: change),
    Mistake("file with CRLF, edit without", _on_file(_to_crlf, in_edits=False)),
    Mistake("edit with CRLF, file without", _on_texts(lambda rng, text: _to_crlf(text))),
    Mistake("file with a byte order mark", _on_file(lambda text: "\ufeff" + text, in_edits=False)),
    Mistake("last line without its newline", _lose_newline),
    Mistake("indented 4 further", _on_texts(_each_line(lambda line: "    " + line))),
    Mistake("indented 4 less", _on_texts(_dedent(4))),
    Mistake(
        "indented 4 further, old only",
        _in_old_only(_each_line(lambda line: "    " + line)),
        REFUSED,
    ),
    Mistake("indented 4 less, old only", _in_old_only(_dedent(4)), REFUSED),
    Mistake("indented 2 further", _on_texts(_each_line(lambda line: "  " + line))),
    Mistake("a tab further", _on_texts(_each_line(lambda line: "\t" + line)), prepare=_WITH_TABS),
    Mistake("tabs for spaces", _on_texts(_each_line(_use_tabs))),
    Mistake("tabs for spaces, old only", _on_texts(_each_line(_use_tabs), only_old=True)),
    Mistake("spaces for tabs", _on_texts(_each_line(_use_spaces)), prepare=_WITH_TABS),
    Mistake("blanks at line ends", _on_texts(_add_blanks)),
    Mistake("blanks at line ends, old only", _on_texts(_add_blanks, only_old=True)),
    Mistake("curly quotes", _on_texts(_bend_quotes)),
    Mistake("curly quotes, old only", _on_texts(_bend_quotes, only_old=True)),
    Mistake("dashes and no-break spaces", _on_texts(_typeset)),
    Mistake("numbers `1: `", lambda rng, change: _number(change, "{}: ", only_old=False)),
    Mistake("numbers `1: `, old only", lambda rng, change: _number(change, "{}: ", only_old=True)),
    Mistake("numbers of `cat -n`", lambda rng, change: _number(change, "{:6}\t", only_old=False)),
    Mistake("a line missing", _miss_line, REFUSED),
    Mistake("a stale line", _use_stale_line, REFUSED),
    Mistake("made before", _apply_before, REFUSED),
    Mistake("first of several made before", _apply_first_before, REFUSED),
    Mistake("escaped newlines", _on_texts(_escape_newlines), REFUSED),
    Mistake("one of two places", _lack_context, REFUSED),
)
