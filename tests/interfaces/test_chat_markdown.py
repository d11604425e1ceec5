"""What a chat draws of a model's Markdown: all of it, safely, whole words, and cheaply."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style

from ferrule.cli.chat import chat_terminal
from ferrule.cli.chat.chat_terminal import ChatTerminal
from ferrule.cli.chat.live_region import LiveRegion
from ferrule.cli.chat.markdown import RowRenderer
from ferrule.cli.chat.markdown_stream import MarkdownStream
from ferrule.cli.terminal import fit_encoding, style_text
from ferrule.core.invisible_characters import escape_invisible

STYLES = re.compile(r"\x1b\[[\d;]*m")
BLOCKS = (
    "# A heading\n",
    "Some *text* with `code` that goes on and on, until it has to be wrapped somewhere.\n",
    "- one\n- two, which is longer than the others and has to be wrapped\n  - nested\n- three\n",
    "1. first\n2. second\n",
    "| a | b |\n|---|--:|\n| `x` | 1 |\n| y | 22 |\n",
    "```python\ndef f(x):\n    '''Doc\n\n    string'''\n    return x\n```\n",
    "```\nplain code that is not closed by ~~~\n~~~\n```\n",
    "> a quote\n> of two lines\n",
    "Title\n=====\n",
    "---\n",
    "<b>bold?</b> ![picture](http://x/y.png) [link](http://x/z) List<String>\n",
    "[hidden]: http://example.org/definition\n",
    "&#27;[2J &#x202e; &lt;\n",
)
DOCUMENTS = st.lists(st.sampled_from(BLOCKS), max_size=8).map("\n".join)


def stream(text: str, sizes: list[int], width: int = 40, *, colour: bool = False) -> list[str]:
    """The rows of an answer that arrives in pieces of these sizes, and is painted after each."""
    answer = MarkdownStream(RowRenderer(width, colour=colour))
    rows: list[str] = []
    at = 0
    for size in [*sizes, len(text)]:
        answer.add(text[at : at + size])
        at += size
        rows += answer.take_finished()
        answer.render_rest()
    return [*rows, *answer.finish()]


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, st.lists(st.integers(1, 30), max_size=40))
def test_pieces_of_any_size_make_the_same_rows(text: str, sizes: list[int]) -> None:
    assert stream(text, sizes) == stream(text, [])


def test_blocks_are_drawn_as_what_they_are() -> None:
    text = "\n".join(BLOCKS[:6])
    assert stream(text, [7] * 100) == [
        "A heading",
        "",
        "Some text with code that goes on and on,",
        "until it has to be wrapped somewhere.",
        "",
        " • one",
        " • two, which is longer than the others",
        "   and has to be wrapped",
        "    • nested",
        " • three",
        " 1 first",
        " 2 second",
        "",
        " a   b",
        " ─────",
        " x   1",
        " y  22",
        "",
        "  def f(x):",
        "      '''Doc",
        "",
        "      string'''",
        "      return x",
    ]


def test_code_is_coloured_as_its_language_wants_it() -> None:
    (row,) = stream("```python\nreturn 1\n```\n", [3] * 10, colour=True)
    assert STYLES.sub("", row) == "  return 1"
    assert row != "  return 1"


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                (
                    *BLOCKS,
                    "\x1b]0;title\x07",
                    "\x1b[2J",
                    "\u202e",
                    "&#x202e;",
                    "\u2066",
                    "\r",
                    "┏ ┃",
                )
            ),
            st.text(max_size=12),
        ),
        max_size=8,
    ).map("".join),
    st.lists(st.integers(1, 20), max_size=10),
)
def test_no_text_becomes_a_control_sequence_or_hides_or_frames(text: str, sizes: list[int]) -> None:
    for row in stream(text, sizes, colour=True):
        shown = STYLES.sub("", row)
        assert escape_invisible(shown, keep_joiners=True) == shown
        assert not set(shown) & set("┏┃┗\n\t")
        assert cell_len(shown) <= 40


def test_all_that_a_model_says_is_shown() -> None:
    rows = " ".join(stream("\n\n".join(BLOCKS[10:]), [], width=90))
    for said in (
        "<b>bold?</b>",
        "picture (http://x/y.png)",
        "link (http://x/z)",
        "List<String>",
        "[hidden]: http://example.org/definition",
        "\\x1b[2J" if "\\x1b" in rows else "[2J",
        "\\u202e",
    ):
        assert said in rows, said


@pytest.mark.parametrize("width", [20, 39, 60, 120])
def test_words_are_not_broken_where_they_fit(width: int) -> None:
    words = [
        "every",
        "single",
        "word",
        "of",
        "this",
        "sentence",
        "fits",
        "into",
        "its",
        "row",
        "whatever",
        "the",
        "width",
        "is",
    ]
    rows = stream(" ".join(words), [5] * 20, width=width)
    assert " ".join(rows).split() == words
    assert all(cell_len(row) <= width for row in rows)


# ---- the live region


def screen_of(written: str, columns: int = 30, lines: int = 8) -> list[str]:
    screen = pyte.Screen(columns, lines)
    pyte.Stream(screen).feed(written)
    return [row.rstrip() for row in screen.display]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(("one", "two", "three", "")), max_size=6),
            st.lists(st.sampled_from(("first", "second")), max_size=2),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_screen_ends_with_the_rows_of_the_region(
    frames: list[tuple[list[str], list[str]]],
) -> None:
    written: list[str] = []
    region = LiveRegion(written.append, lambda: (30, 40))
    above: list[str] = []
    for rows, finished in frames:
        region.paint(rows, finished)
        above += finished
    shown = screen_of("".join(written), lines=60)
    wanted = [*above, *frames[-1][0]]
    assert shown[: len(wanted)] == wanted
    assert not any(shown[len(wanted) :])


def test_a_repaint_writes_only_what_differs_as_one_frame() -> None:
    written: list[str] = []
    region = LiveRegion(written.append, lambda: (30, 8))
    region.paint(["same", "old"])
    region.paint(["same", "new"])
    region.paint(["same", "new"])
    assert len(written) == 2
    assert "same" not in written[1] and "new" in written[1]
    assert written[1].startswith("\x1b[?2026h") and written[1].endswith("\x1b[?2026l")


def test_ten_thousand_streamed_tokens_take_a_bounded_share_of_a_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10,000 tokens, 100 a second, with the real intervals, on a clock of the test's own."""
    monkeypatch.setattr(chat_terminal, "terminal_size", lambda: (100, 40))
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        monkeypatch.setenv("FORCE_COLOR", "1")
        terminal = ChatTerminal()
        terminal.status = lambda: f"answering · {int(now)} s"
        text = "\n".join(BLOCKS[:6] * 200)
        tokens = [text[at : at + 4] for at in range(0, 40_000, 4)]
        now = 0.0
        next_paint = 0.0
        paints = 0
        for token in tokens:
            terminal.stream_answer(token)
            now += 0.01
            if now >= next_paint:
                next_paint = now + terminal.paint_once()
                paints += 1
        terminal.end_stream()
        monkeypatch.undo()
    share = terminal.painting_seconds / now
    each = terminal.painting_seconds / paints * 1000
    print(
        f"\n{len(tokens):,} tokens in {now:.0f} s, load {os.getloadavg()[0]:.1f}: "
        f"{paints} repaints of {each:.1f} ms, {share:.2%} of a core"
    )
    # The pauses between repaints follow what one takes: about two percent on any machine.
    assert share < 0.03
    assert paints > 100, "and what arrives is seen soon"


def test_plain_output_has_whole_lines_in_order_and_paints_over_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = ChatTerminal(plain=True)
    terminal.status = lambda: "never shown"
    for piece in ("# Head", "ing\nso", "me text"):
        terminal.stream_answer(piece)
        terminal.paint()
    terminal.end_stream()
    terminal.write_message("▸ read_file a.txt", style="bold cyan")
    terminal.write_message("  ✓ 3 bytes", style="green")
    assert capsys.readouterr().out == "# Heading\nsome text\n> read_file a.txt\n  + 3 bytes\n"


def test_no_colour_means_no_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = ChatTerminal()
    terminal.stream_answer(BLOCKS[5])
    terminal.end_stream()
    terminal.write_message("▸ read_file a.txt", style="bold cyan")
    assert "\x1b" not in capsys.readouterr().out


def test_a_terminal_that_is_not_utf8_gets_marks_it_can_draw(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "out"
    with file.open("w", encoding="latin-1") as out:
        monkeypatch.setattr(sys, "stdout", out)
        terminal = ChatTerminal()
        terminal.stream_answer("- Käse 日本\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## not a frame\n")
        terminal.stream_answer("\n```\n## nor this\n```\n")
        terminal.end_stream()
        terminal.write_message("▸ read_file a.txt …")
        terminal.draw_frame("┃", [("permission: read_file", "")])
    shown = file.read_text(encoding="latin-1")
    assert " * Käse \\u65e5\\u672c\n" in shown
    assert "> read_file a.txt ...\n" in shown
    framed = [line for line in shown.splitlines() if "##" in line]
    assert framed == ["## permission: read_file"], "the frame belongs to questions alone"


@given(
    st.text("ab ·é\t\n世\u0301│-*\u00ad\x1b", max_size=40), st.sampled_from(["", "dim", "bold red"])
)
def test_a_message_looks_the_same_whether_it_has_to_be_laid_out(text: str, style: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_terminal, "terminal_size", lambda: (24, 10))
        out = io.StringIO()
        patch.setattr(sys, "stdout", out)
        terminal = ChatTerminal()
        terminal.colour = True
        terminal.write_message(text, style=style)
        rows = RowRenderer(23, colour=True).render_message(text, style)
        assert out.getvalue() == fit_encoding("\n".join(rows) + "\n", out)


@pytest.mark.parametrize("style", ["bold", "dim", "bold underline", "bold yellow", "cyan", "red"])
def test_styles_are_the_codes_that_rich_writes(style: str) -> None:
    shown = Style.parse(style).render("text", color_system=ColorSystem.STANDARD)
    assert style_text("text", style) == shown


def test_what_lays_out_markdown_is_not_loaded_before_the_first_prompt() -> None:
    program = (
        "import sys\n"
        "from ferrule.cli.chat import loop\n"
        "loop.ChatTerminal().write_message('ferrule · a model · /home/é · mode default')\n"
        "print(sorted({'rich.console', 'markdown_it', 'pygments'} & set(sys.modules)))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines()[-1] == "[]"
