"""Text from other systems: what is taken out, and that the quick way leaves nothing in."""

from __future__ import annotations

import unicodedata

import pytest

from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.invisible_characters import escape_invisible


def test_lines_of_ascii_stay_as_they_are() -> None:
    text = "Line one\n\tline two ~!\n"
    assert clean_text(text) is text


@pytest.mark.parametrize("plane", [0, 1, 2, 0xE])
def test_no_character_gets_past_the_quick_look(plane: int) -> None:
    for code in range(plane << 16, (plane + 1) << 16):
        character = chr(code)
        unprintable = unicodedata.category(character) in ("Cf", "Co", "Cn")
        kept = "" if unprintable else escape_invisible(character, escape=lambda _: "")
        assert clean_text(f"a{character}b") == f"a{kept}b", hex(code)
