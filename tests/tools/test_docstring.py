"""Descriptions that are read from docstrings."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import tool
from ferrule.tools.docstring import parse_docstring


def test_a_wrapped_paragraph_becomes_one_line() -> None:
    text = """Run a program and return
    its output.

    There is no shell:
    no pipes.
    """
    expected = "Run a program and return its output.\n\nThere is no shell: no pipes."
    assert parse_docstring(text).description == expected


def test_a_tool_is_described_without_the_line_breaks_of_its_source() -> None:
    @tool
    def look_up(name: str) -> str:
        """Look up a person
        by name.

        Args:
            name: first name
                and last name
        """
        return name

    assert look_up.description == "Look up a person by name."
    assert look_up.arguments.schema["properties"]["name"]["description"] == (
        "first name and last name"
    )


@pytest.mark.parametrize(
    "layout",
    [
        "Sizes:\n\n    small  1\n    large  2\n\nThat is all.",
        "Sizes:\n    small  1\n    large  2\nThat is all.",
        "Example of a query:\n\n```\nselect a\n  from b\n```\n\nThat is all.",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "Formats:\n- text\n- json",
        "1. first\n2. second",
    ],
)
def test_code_tables_and_lists_keep_their_lines(layout: str) -> None:
    assert parse_docstring(layout).description == layout


def test_a_wrapped_list_item_becomes_one_line() -> None:
    text = "Formats:\n- text, as it\n  was written\n- json"
    assert parse_docstring(text).description == "Formats:\n- text, as it was written\n- json"


WORDS = st.lists(st.from_regex(r"[a-z]{1,12}[.,]?", fullmatch=True), min_size=1, max_size=40)


@given(paragraphs=st.lists(WORDS, min_size=1, max_size=4), width=st.integers(14, 100))
def test_a_description_does_not_depend_on_where_its_docstring_is_wrapped(
    paragraphs: list[list[str]], width: int
) -> None:
    texts = [" ".join(words) for words in paragraphs]
    wrapped = "\n\n".join(textwrap.fill(text, width) for text in texts)
    assert parse_docstring(wrapped).description == "\n\n".join(texts)


GOOGLE = """Order a part.

Args:
    part (str): which part
        to order
    count: how many

Returns:
    a number
"""
NUMPY = """Order a part.

Parameters
----------
part : str
    which part
    to order
count : int, optional
    how many

Returns
-------
int
    a number
"""
SPHINX = """Order a part.

:param part: which part
    to order
:type part: str
:keyword int count: how many
:returns: a number
"""
EPYDOC = """Order a part.

@param part: which part
    to order
@type part: str
@keyword count: how many
@return: a number
"""


@pytest.mark.parametrize(
    "text", [GOOGLE, NUMPY, SPHINX, EPYDOC], ids=["google", "numpy", "sphinx", "epydoc"]
)
def test_every_style_in_use_gives_the_same_texts(text: str) -> None:
    documentation = parse_docstring(text)
    assert documentation.description == "Order a part."
    assert documentation.parameters == {"part": "which part to order", "count": "how many"}


def test_parameters_that_share_a_text_in_numpy_style_each_get_it() -> None:
    text = "Move.\n\nParameters\n----------\nx, y : float\n    where to\n*rest : int\n    more"
    assert parse_docstring(text).parameters == {"x": "where to", "y": "where to", "rest": "more"}


def test_a_word_of_the_description_that_names_a_section_is_description() -> None:
    text = "Compare.\n\nParameters\nare numbers.\n@home is fine, and :so is this"
    assert parse_docstring(text).description == (
        "Compare.\n\nParameters are numbers. @home is fine, and :so is this"
    )
