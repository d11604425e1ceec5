"""What is asked about is seen whole: page by page at a terminal, at once without one."""

from __future__ import annotations

import io
import sys

import pytest

from ferrule.cli import confirmation


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 20 columns and 8 rows."""
    monkeypatch.setattr(confirmation, "has_terminal", lambda: True)
    monkeypatch.setattr(confirmation, "count_columns_of_screen", lambda: 20)
    monkeypatch.setattr(confirmation, "count_screen_rows", lambda: 8)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def test_a_text_longer_than_the_screen_comes_in_pages(
    terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    text = "\n".join(f"line {number} of a long text" for number in range(6))
    assert confirmation.show_pages(text, yes=False)
    pages = capsys.readouterr().err.split("q leaves: ")
    assert [page.count("\n") for page in pages] == [5, 5, 2]
    assert "".join(pages).count("    text") == 6  # what continues a line is indented


def test_who_leaves_before_the_end_has_approved_nothing(
    terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert not confirmation.show_pages("a\n" * 9, yes=False)
    assert "nothing changed" in capsys.readouterr().err


def test_nothing_waits_where_the_question_is_answered(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirmation.show_pages("a\n" * 9, yes=True)
    assert capsys.readouterr().err == "a\n" * 9 + "\n"
