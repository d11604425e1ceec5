"""Where an edit lands, what it writes there, and why it is refused: texts in, texts out."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.models.untrusted_text import escape_untrusted
from ferrule.toolkits.files import lines
from ferrule.toolkits.files.edit_application import Applied, apply_edits
from ferrule.toolkits.files.edit_matching import Edit, find_matches
from ferrule.toolkits.files.edit_refusals import describe_grade


def apply(text: str, *edits: tuple[str, str]) -> Applied:
    return apply_edits(text, [Edit(old, new) for old, new in edits], "`f`")


def refused(text: str, *edits: tuple[str, str]) -> str:
    with pytest.raises(ToolFailed) as failure:
        apply(text, *edits)
    return failure.value.message


BLOCK = "def f():\n    if x:\n        go()\n    end()\n"
TABBED = "def f():\n\tif x:\n\t\tgo()\n\tend()\n"

GRADES: list[tuple[str, str, str, str, str]] = [
    # grade, file, old text, new text, file afterwards
    ("exact", "a = 1\nb = 2\n", "b = 2", "b = 3", "a = 1\nb = 3\n"),
    ("exact", "a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
    ("exact", "\ufeffa\nb\n", "a\nb", "x", "\ufeffx\n"),
    ("exact", "a  \nb\n", "a  \nb", "a\nb", "a\nb\n"),
    ("line endings", "a\r\nb\nc\n", "a\nb\n", "a\nB\n", "a\r\nB\nc\n"),
    ("line endings", "a\nb\n", "a\r\nb\r\n", "a\r\nx\r\nb\r\n", "a\nx\nb\n"),
    ("line endings", "a\nb", "a\nb\n", "a\nB\n", "a\nB"),
    ("trailing white space", "a  \nb\t\nc\n", "a\nb\n", "a\nx\nb\n", "a  \nx\nb\t\nc\n"),
    ("trailing white space", "a\nb\n", "a  \nb  ", "A  \nb  ", "A\nb\n"),
    ("trailing white space", "a  \r\nb\r\n", "a\nb\n", "a\nc\n", "a  \r\nc\r\n"),
    # Only the old text has other blanks: those of the file stay, of lines that are blank too.
    ("trailing white space", "a\n  \nb\n", "a \n   \nb\n", "x\n  \nb\n", "x\n  \nb\n"),
    ("trailing white space", "a  \nb\n", "a\nb \n", "a  \nx\n", "a  \nx\n"),
    ("trailing white space", "a\n  \nb\n", "a \n  \nb\n", "a\n\nb\n", "a\n\nb\n"),
    ("look-alikes", "say('a')\n", "say(‘a’)", "say(‘b’)", "say('b')\n"),
    ("look-alikes", "x = “a” – b\n", 'x = "a" - b', 'x = "c" - b', "x = “c” – b\n"),
    ("look-alikes", "a\xa0b\nc\n", "a b\nc", "a b\nd", "a\xa0b\nd\n"),
    ("look-alikes", "f('a')\nb\n", "f(‘a’)\n", "f(‘a’)\ng(“c’s”)\n", "f('a')\ng(\"c's\")\nb\n"),
    (
        "indentation",
        BLOCK,
        "if x:\n    go()\nend()\n",
        "if x:\n    go()\n    on()\nend()\n",
        "def f():\n    if x:\n        go()\n        on()\n    end()\n",
    ),
    (
        "indentation",
        BLOCK,
        "      if x:\n          go()\n",
        "      if y:\n          go()\n",
        "def f():\n    if y:\n        go()\n    end()\n",
    ),
    (
        "indentation",
        TABBED,
        "    if x:\n        go()\n",
        "    if x:\n        go()\n        on()\n",
        "def f():\n\tif x:\n\t\tgo()\n\t\ton()\n\tend()\n",
    ),
    (
        "indentation",
        BLOCK,
        "\tif x:\n\t\tgo()\n",
        "\twhile x:\n\t\tgo()\n",
        "def f():\n    while x:\n        go()\n    end()\n",
    ),
    ("indentation", TABBED, "    end()", "    done()", TABBED.replace("end", "done")),
    (
        "line numbers",
        BLOCK,
        "2:     if x:\n3:         go()\n",
        "2:     if y:\n3:         go()\n4:         on()\n",
        "def f():\n    if y:\n        go()\n        on()\n    end()\n",
    ),
    ("line numbers", BLOCK, "     4\t    end()", "    done()", BLOCK.replace("end", "done")),
    ("line numbers", "a\n\nb\n", "1: a\n2:\n3: b", "a\nb", "a\nb\n"),
    (
        "line numbers",
        "x = {\n    404: 'no',\n    405: 'not',\n}\n",
        "2:     404: 'no',\n3:     405: 'not',",
        "    404: 'no',\n    405: 'never',",
        "x = {\n    404: 'no',\n    405: 'never',\n}\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("grade", "text", "old", "new", "after"), GRADES)
def test_what_was_copied_loosely_fits_by_its_grade_and_the_rest_of_the_place_stays(
    grade: str, text: str, old: str, new: str, after: str
) -> None:
    applied = apply(text, (old, new))
    assert (applied.replacements[0][0].grade, applied.text) == (grade, after)
    assert (describe_grade(grade) == "fits exactly") is (grade == "exact")


def test_where_line_endings_alone_differ_trailing_blanks_are_replaced_with_the_rest() -> None:
    applied = apply("x\r\na  \nz\n", ("x\na  ", "y"))
    assert (applied.replacements[0][0].grade, applied.text) == ("line endings", "y\nz\n")


def test_the_place_that_is_shown_is_the_one_where_most_lines_fit() -> None:
    # The longest line is like one of the first block; all other lines are those of the second.
    text = (
        "first = compute_everything_at_once(alpha, beta)\n"
        + "pad\n" * 3
        + "open()\nsecond = compute(gamma)\nclose()\n"
    )
    old = "open()\nsecond = compute_everything_at_once(alpha, gamma)\nclose()\n"
    with pytest.raises(ToolFailed) as refused:
        apply(text, (old, "x"))
    assert "second = compute(gamma)" in str(refused.value)
    assert "alpha, beta" not in str(refused.value)


@pytest.mark.parametrize(("wrong", "rest"), [(3, ""), (4, "\n- and 1 more")])
def test_a_refusal_shows_three_differences_and_counts_the_others(wrong: int, rest: str) -> None:
    rows = [f"value_{n} = {n}" for n in range(8)]
    old = [f"{row}0" if 0 < n <= wrong else row for n, row in enumerate(rows)]
    listed = "".join(
        f"\n- line {n + 1} is `{rows[n]}`, in `old_string` `{old[n]}`" for n in (1, 2, 3)
    )
    assert f"What differs:{listed}{rest}\nCall" in refused("\n".join(rows), ("\n".join(old), "x"))


def test_bytes_that_are_not_utf8_fit_the_character_that_a_reading_shows_and_stay() -> None:
    text = lines.decode(b"na\xefve = 1\n")
    applied = apply(text, ("na\ufffdve = 1", "na\ufffdve = 2"))
    assert lines.encode(applied.text) == b"na\xefve = 2\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        # One line with another indentation could be another line.
        ("    go()\n", "        go()\n", "        on()\n", "begins with 4 spaces"),
        # Not all lines are shifted alike.
        (BLOCK, "  if x:\n      go()\n  end()\nx", "y", "most similar lines"),
        (BLOCK, "      if x:\n        go()\n", "      if y:\n        go()\n", "begins with 4 spaces"),
        # The new text is indented as the file is: it may mean that, or go deeper.
        (BLOCK, "if x:\n    go()\n", "    if x:\n        go()\n        on()\n", "most similar"),
        # No line is in both texts, so nothing shows how the new one is meant.
        (BLOCK, "if x:\n    go()\n", "while y:\n    on()\n", "most similar"),
        # Left of the first column.
        ("if x:\n    go()\n", "    if x:\n        go()\n", "    if x:\n  go()\n", "most similar"),
        # It begins behind the indentation, so the second line may be meant further in.
        ("    return x\n", "return x", "if x:\n    return x\nreturn y", "unclear how far"),
        ("    return x\n", "return x", "    return x, y", "unclear how far"),
        # Whether the typographic apostrophe is meant, nothing says.
        ("it’s\nf(\"a\")\n", "f(“a”)\n", "f(“a”)\nf(“it’s”)\n", "most similar"),
        # Nor whether this is: the file has both kinds.
        ("“Hi”\nf(\"a\")\n", "f(“a”)\n", "f(“a”)\nSay “hi”\n", "most similar"),
        # Blanks that are neither those of the file nor of the old text, which has them by mistake.
        ("a\n  \nb\n", "a \n   \nb\n", "x\n    \nb\n", "most similar"),
        ("x\n", "5: x", "y", "most similar"),
        # Nor does the number of another line show that the new text is there already.
        ("alphabet\nbeta\n", "alphabets", "2: alphabet", "most similar"),
        ("a\n", "1: a\n3: b", "x", "nothing was written"),
        ("a\nb\nc\n", "a\nx", "b", "nothing was written"),
        ("a\n", " \n \n", "b", "read the file again"),
    ],
)  # fmt: skip
def test_what_could_be_meant_otherwise_is_refused(
    text: str, old: str, new: str, reason: str
) -> None:
    assert reason in refused(text, (old, new))


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        ("a\n", "", "x", ["is empty", "write_file"]),
        ("a\n", "a", "a", ["are the same"]),
        ("a\nb\nz\nb\n", "b", "x", ["at lines 2, 4", "replace_all: true", "1: a\n2: b", "3: z\n4: b"]),
        ("a  \na \n", "a\n", "x\n", ["white space at line ends", "at lines 1, 2"]),
        ("a\nnew line\n", "a\n", "a\nnew line\n", ["already, at line 1", "made before"]),
        ("a\n\n\nb\n", "a\n", "a\n\n\n", ["already, at line 1", "made before"]),
        ("a\n\n\nb\n", "\nb\n", "\n\nb\n", ["already, at line 3", "made before"]),
        ("a\nnew line\nc\n", "old line\nc", "new line\nc", ["is there already, at line 2"]),
        (BLOCK, "    if x:\n        stop()\n", "", ["2:     if x:\n3:         go()", "line 3 is"]),
        (BLOCK, "    if x:\n    end()\n", "", ["line 3 is"]),
        (BLOCK, "if x:\\n        go()", "x", ["at line 2", "with one backslash"]),
        (BLOCK, "nowhere to be seen", "x", ["read the file again"]),
        ("betta\nbeta max\n", "beta maxi", "x", ["2: beta max", "line 2 is `beta max`"]),
    ],
)  # fmt: skip
def test_each_refusal_has_its_own_words_and_shows_the_place(
    text: str, old: str, new: str, words: list[str]
) -> None:
    message = refused(text, (old, new))
    assert [word for word in words if word not in message] == [], message


def test_a_refusal_is_bounded() -> None:
    text = "".join(f"{'x' * 1000} {number}\n" for number in range(3000))
    message = refused(text, (text.replace(" 2900\n", " other\n"), "new"))
    assert len(message) < 16_000
    assert "[lines 31-" in message
    assert len(refused("same\n" * 5000, ("same", "new"))) < 1000


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("a\n\nb\n", "a\n\nb", "a\n\n\nb", "a\n\n\nb\n"),
        ("f(a,  b)\n", "a,", "a, ", "f(a,   b)\n"),
        # The newline before the old text ends another line; the one that is added is a blank line.
        ("x\n\na\n", "\na\n", "\n\na\n", "x\n\n\na\n"),
    ],
)
def test_white_space_is_added_beside_other_white_space_where_it_cannot_have_been_before(
    text: str, old: str, new: str, after: str
) -> None:
    assert apply(text, (old, new)).text == after


def test_several_edits_are_found_in_the_text_as_it_was_and_made_together() -> None:
    assert apply("a\nb\nc\n", ("a", "b"), ("b", "a"), ("c\n", "")).text == "b\na\n"
    # What both have as context does not collide.
    assert apply("a\nb\nc\n", ("a\nb\n", "A\nb\n"), ("b\nc\n", "b\nC\n")).text == "A\nb\nC\n"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (("zzz", "x"), "`old_string` of edit 2 was not found"),
        (("a\n", "x\n"), "edits 1 and 2 both change line 1"),
        (("b", "b"), "`old_string` of edit 2 and its `new_string` are the same"),
        (("A", "x"), "`old_string` of edit 2 was not found"),
    ],
)
def test_several_edits_are_refused_together_with_the_number_of_the_one_that_does_not_fit(
    second: tuple[str, str], words: str
) -> None:
    assert words in refused("a\nb\nc\n", ("a", "A"), second)


def test_every_occurrence_is_replaced_where_that_is_asked_for() -> None:
    everywhere = [Edit("a", "b", everywhere=True)]
    assert apply_edits("a a\na\n", everywhere, "`f`").text == "b b\nb\n"
    assert apply_edits("aaa", [Edit("aa", "b", everywhere=True)], "`f`").text == "ba"
    many = apply_edits("a\n" * 20_000, everywhere, "`f`")
    assert (many.text, many.replacements[0][0].count) == ("b\n" * 20_000, 20_000)
    loosely = apply_edits("f(‘a’)\nf(‘a’)\n", [Edit("f('a')", "g('a')", everywhere=True)], "`f`")
    assert loosely.text == "g(‘a’)\ng(‘a’)\n"
    with pytest.raises(ToolFailed, match="Copy it exactly"):
        apply_edits("a’\n" * 20_000, [Edit("a'", "b", everywhere=True)], "`f`")


@pytest.mark.parametrize(
    "held", ["a\u200bb", "stop = <|im_end|>", "\ufeffimport x", "</s>", "x\u202ey\U000e0041"]
)
def test_an_edit_of_what_was_spelled_out_fits_as_it_was_shown_and_is_told_how_else(
    held: str,
) -> None:
    text = f"first\n{held}\nlast\n"
    shown = escape_untrusted(held)
    assert shown != held
    copied = json.loads(f'"{shown}"')
    assert apply(text, (copied, "new")).text == "first\nnew\nlast\n"
    message = refused(text, (shown, "new"))
    assert "at line 2 the file has the characters" in message
    assert "with one backslash" in message
    message = refused(f"first\n{shown}\nlast\n", (copied, "new"))
    assert "at line 2 the file has these escapes as text" in message
    assert "backslashes twice" in message


# Properties

CASES = int(os.environ.get("FERRULE_EDIT_CASES", "100"))

PIECE = st.sampled_from(["a", "b", "a b", "f('a')", "f(‘a’)", 'x = "-"', "1: a", "é\xa0–", ""])
INDENT = st.sampled_from(["", "", "  ", "    ", "        ", "\t", "\t\t", "\t  "])
BLANK = st.sampled_from(["", "", "", " ", "\t"])
ROW = st.builds("{}{}{}".format, INDENT, PIECE, BLANK)
ROWS = st.lists(ROW, min_size=1, max_size=8)
END = st.sampled_from(["\n", "\n", "\r\n"])


@st.composite
def files(draw: st.DrawFn) -> str:
    rows = draw(ROWS)
    text = "".join(row + draw(END) for row in rows)
    return draw(st.sampled_from(["", "", "\ufeff"])) + text.removesuffix(
        draw(st.sampled_from(["", "", "\n"]))
    )


@st.composite
def copies(draw: st.DrawFn, text: str) -> str:
    """Some lines of a text as a model might copy them."""
    rows = [row.removesuffix("\r") for row in text.removeprefix("\ufeff").split("\n")]
    first = draw(st.integers(0, len(rows) - 1))
    last = draw(st.integers(first, len(rows) - 1))
    shift = draw(st.sampled_from(["", "", "  ", "    ", "\t"]))
    rows = [draw(BLANK).join(["", shift + row, ""]) for row in rows[first : last + 1]]
    copied = "\n".join(rows) + draw(st.sampled_from(["", "\n"]))
    kind = draw(st.sampled_from(["as it is", "quotes", "spaces", "numbers", "bare"]))
    match kind:
        case "quotes":
            return copied.replace("'", "’").replace('"', "”")
        case "spaces":
            return copied.expandtabs(4)
        case "numbers":
            numbered = copied.split("\n")
            return "\n".join(f"{at}: {row}" for at, row in enumerate(numbered, first + 1))
        case "bare":
            return "\n".join(row.strip() for row in copied.split("\n"))
        case _:
            return copied


@settings(max_examples=CASES)
@given(st.data())
def test_an_edit_changes_nothing_outside_the_lines_that_it_matched(data: st.DataObject) -> None:
    text = data.draw(files())
    old = data.draw(copies(text))
    new = data.draw(st.one_of(copies(text), ROW, ROWS.map("\n".join)))
    try:
        applied = apply(text, (old, new))
    except ToolFailed:
        return
    (replacement,) = applied.replacements[0]
    first = text.rfind("\n", 0, replacement.start) + 1
    stop = text.find("\n", max(first, replacement.end - 1))
    rest = text[stop + 1 :] if stop != -1 else ""
    assert applied.text.startswith(text[:first])
    assert applied.text.endswith(rest)
    matched = text[replacement.start : replacement.end]
    wanted = old.replace("\r\n", "\n").rstrip().count("\n")
    assert matched.rstrip().count("\n") <= max(wanted, old.count("\n"))


@settings(max_examples=CASES)
@given(st.data())
def test_a_place_that_is_not_the_only_one_is_never_edited(data: st.DataObject) -> None:
    text = data.draw(files())
    old = data.draw(copies(text))
    new = data.draw(ROW)
    assume(old.strip() and old != new)
    doubled = f"|\n{text}\n|\n" * 2
    assert len(find_matches(doubled, Edit(old, new))) != 1
    with pytest.raises(ToolFailed):
        apply(doubled, (old, new))


@given(st.text(max_size=40), st.text(min_size=1, max_size=4), st.text(max_size=4))
def test_an_exact_edit_happens_only_where_the_text_is_unique(text: str, old: str, new: str) -> None:
    places = sum(text.startswith(old, at) for at in range(len(text)))
    try:
        applied = apply(text, (old, new))
    except ToolFailed as refusal:
        known = ("already", "unclear", "the same")
        assert places != 1 or any(word in refusal.message for word in known), refusal
        return
    (replacement,) = applied.replacements[0]
    if places == 1 and lines.detect_line_ending(text) == "\n":
        assert (applied.text, replacement.grade) == (text.replace(old, new), "exact")
    assert places <= 1


@settings(max_examples=CASES)
@given(st.data())
def test_an_edit_that_keeps_its_text_keeps_the_file(data: st.DataObject) -> None:
    """What both texts have stays to the byte, however loosely it was copied."""
    text = data.draw(files())
    old = data.draw(copies(text))
    try:
        applied = apply(text, (old, f"{old}\nadded" if not old.endswith("\n") else f"{old}added\n"))
    except ToolFailed:
        return
    (replacement,) = applied.replacements[0]
    assume(replacement.grade != "exact")
    matched = text[replacement.start : replacement.end].removesuffix("\n").removesuffix("\r")
    assert replacement.new.startswith(matched)
