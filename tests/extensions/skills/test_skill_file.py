"""What a well-made `SKILL.md` is, and that everything else is named with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.extensions.skills.skill_file import parse_skill

FILE = ".agents/skills/pdf-forms/SKILL.md"

WHOLE = b"""---
name: pdf-forms
description: Fills in PDF forms. Use it when a form is to be filled in.
license: MIT
compatibility: Needs a PDF library.
metadata:
  author: tools-team
  version: "1.0"
allowed-tools: Read Bash(git log:*) Write
---
# Forms

Read `references/fields.md` first.
"""


def test_a_skill_with_every_key_is_read_whole() -> None:
    skill = parse_skill(WHOLE, FILE)
    assert skill.name == "pdf-forms"
    assert skill.description.startswith("Fills in PDF forms.")
    assert (skill.license, skill.compatibility) == ("MIT", "Needs a PDF library.")
    assert skill.metadata == {"author": "tools-team", "version": "1.0"}
    assert skill.allowed_tools == ("Read", "Bash(git log:*)", "Write")
    assert skill.body == "# Forms\n\nRead `references/fields.md` first."
    assert (skill.file, skill.folder, skill.origin) == (
        FILE,
        ".agents/skills/pdf-forms",
        "repository",
    )
    assert skill.warnings == ()


def test_a_byte_order_mark_changes_nothing() -> None:
    assert parse_skill(b"\xef\xbb\xbf" + WHOLE, FILE) == parse_skill(WHOLE, FILE)


def test_lines_may_end_as_on_windows() -> None:
    skill = parse_skill(WHOLE.replace(b"\n", b"\r\n"), FILE)
    assert (skill.name, skill.metadata["version"]) == ("pdf-forms", "1.0")


WRONG = {
    b"no front matter": (":1:1:", "no front matter"),
    b"---\nname: pdf-forms\n": (":1:1:", "not closed"),
    b"---\nname: pdf-forms\n---\n": (":2:1:", "`description` is missing"),
    b"---\nname: pdf-forms\ndescription: ''\n---\n": (":2:1:", "`description` is missing"),
    b"---\nname: 12\ndescription: x\n---\n": (":2:7:", "`name` must be text"),
    b"---\nname: pdf-forms\ndescription: x\nmetadata: [a]\n---\n": (":4:11:", "mapping"),
    b"---\nname: pdf-forms\ndescription: [Use it\n---\n": (":4:1:", "not YAML"),
    b"---\nname: pdf-forms\nname: pdf-forms\ndescription: x\n---\n": (":3:1:", "a second time"),
    b"---\nname: !!python/name:os.system pdf-forms\ndescription: x\n---\n": (
        ":2:",
        "tags are not used",
    ),
    b"---\nname: pdf-forms\ndescription: x\n---\n\xff\xfe": (":5:1:", "not UTF-8"),
}


@pytest.mark.parametrize("data", WRONG, ids=lambda data: repr(data[:50]))
def test_what_is_wrong_is_said_with_file_line_and_column(data: bytes) -> None:
    place, said = WRONG[data]
    with pytest.raises(ConfigError) as caught:
        parse_skill(data, FILE)
    assert caught.value.detail.startswith(FILE + place)
    assert said in caught.value.detail


@pytest.mark.parametrize(
    ("data", "name", "description", "place"),
    [
        (b"---\ndescription: x\n---\n", "pdf-forms", "x", ":2:1:"),
        (b"---\nname: other\ndescription: x\n---\n", "other", "x", ":2:7:"),
        (b"---\nname: PDF Forms\ndescription: x\n---\n", "pdf-forms", "x", ":2:7:"),
        (b"---\nname: Web_Browser!\ndescription: x\n---\n", "web-browser", "x", ":2:7:"),
        (b"---\nname: -pdf\ndescription: x\n---\n", "pdf", "x", ":2:7:"),
        (b"---\nname: " + b"a" * 65 + b"\ndescription: x\n---\n", "pdf-forms", "x", ":2:7:"),
        (
            b"---\nname: pdf-forms\ndescription: " + b"x" * 1025 + b"\n---\n",
            "pdf-forms",
            "x" * 1024,
            ":3:14:",
        ),
        (b"---\nname: pdf-forms\n---\n\n# Fill forms\n", "pdf-forms", "Fill forms", ":2:1:"),
    ],
)
def test_a_skill_beside_the_letter_of_the_format_works_and_is_said(
    data: bytes, name: str, description: str, place: str
) -> None:
    skill = parse_skill(data, FILE)
    assert (skill.name, skill.description) == (name, description)
    assert any(str(one).startswith(FILE + place) for one in skill.warnings)


def test_keys_and_values_that_mean_nothing_are_warnings() -> None:
    data = (
        b"---\nname: pdf-forms\ndescription: x\nlicence: MIT\nmetadata: "
        b"{version: 1.0}\nallowed-tools: [Read]\n---\n"
    )
    skill = parse_skill(data, FILE)
    said = [str(one) for one in skill.warnings]
    assert said[0].startswith(f"{FILE}:4:1: `licence` is not a key of a skill")
    assert "did you mean `license`?" in said[0]
    assert "is empty" in said[1]
    assert said[2].startswith(f"{FILE}:5:21: `metadata.version` is no text")
    assert said[3].startswith(f"{FILE}:6:16: `allowed-tools`")
    assert (skill.metadata, skill.allowed_tools) == ({}, ())


@given(st.binary(max_size=300))
def test_any_bytes_are_a_skill_or_a_named_error(data: bytes) -> None:
    try:
        skill = parse_skill(b"---\nname: pdf-forms\n" + data, FILE)
    except ConfigError as error:
        assert error.detail.startswith(FILE)
    else:
        assert skill.name == "pdf-forms" and 1 <= len(skill.description) <= 1024
