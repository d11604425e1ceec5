"""What the status line says, and what of a call is shown while its arguments arrive."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import termios
import tty
from decimal import Decimal
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from ferrule import ArgumentsDelta, TextDelta
from ferrule.cli.chat.file_references import (
    complete_path,
    find_open_reference,
    find_references,
    possible_paths,
)
from ferrule.cli.chat.prompt import ChatPrompt, wants_completion
from ferrule.cli.chat.slash_commands import next_mode
from ferrule.cli.chat.status import RunStatus
from ferrule.cli.chat.typed_ahead import has_typed, take_typed_lines, without_echo
from ferrule.cli.tool_cards import describe_partial_call
from ferrule.core.events import CallEvaluated, ModelAnswered, RunStarted, Usage
from ferrule.engine.context.usage import ContextUsage


def test_a_list_opens_by_itself_for_commands_and_paths_alone() -> None:
    wanted = {
        "/": True,
        "/mo": True,
        "/model x": False,
        "see @src/a": True,
        "see a": False,
        "": False,
    }
    assert {text: wants_completion(text) for text in wanted} == wanted


def test_what_is_typed_during_a_turn_waits_for_the_prompt_as_it_was_pressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Enter would begin another line if the terminal had made a line feed of it."""
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(os.dup(theirs)) as terminal:
            monkeypatch.setattr("sys.stdin", terminal)
            before = termios.tcgetattr(theirs)
            with without_echo():
                os.write(ours, b"goo\x7f on\r")
                assert select.select([theirs], [], [], 10)[0]
            assert termios.tcgetattr(theirs) == before
            tty.setraw(theirs, termios.TCSANOW)
            assert os.read(theirs, 100) == b"goo\x7f on\r"
    finally:
        os.close(theirs)
        os.close(ours)


def test_what_was_typed_is_kept_when_a_key_interrupts_what_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(os.dup(theirs)) as terminal:
            monkeypatch.setattr("sys.stdin", terminal)
            with without_echo():
                assert not has_typed()
                os.write(ours, b"first\rsecond\r")
                os.write(ours, b"\x03")
                assert select.select([theirs], [], [], 10)[0]
                assert has_typed()
                assert take_typed_lines() == "first\rsecond\r"
    finally:
        os.close(theirs)
        os.close(ours)


def test_the_status_says_that_something_was_typed_meanwhile() -> None:
    typed = [False]
    status = RunStatus(lambda: "plan", clock=lambda: 0.0, has_typed=lambda: typed[0])
    status.begin("working")
    assert status.describe_run() == "working · 0 s · mode plan"
    typed[0] = True
    wanted = "working · 0 s · what you typed is kept for after it · mode plan"
    assert status.describe_run() == wanted


def test_lines_that_were_typed_before_the_chat_began_end_with_the_key_that_sends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(os.dup(theirs)) as terminal:
            monkeypatch.setattr("sys.stdin", terminal)
            os.write(ours, b"first\rsecond\rhalf")
            assert select.select([theirs], [], [], 10)[0]
            with without_echo():
                assert take_typed_lines() == "first\rsecond\rhalf"
                assert take_typed_lines() == ""
    finally:
        os.close(theirs)
        os.close(ours)


def test_a_text_that_is_pasted_while_something_runs_is_marked_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(os.dup(theirs)) as typed, os.fdopen(os.dup(theirs), "w") as shown:
            monkeypatch.setenv("TERM", "xterm")
            monkeypatch.setattr("sys.stdin", typed)
            monkeypatch.setattr("sys.stdout", shown)
            with without_echo():
                assert os.read(ours, 100) == b"\x1b[?2004h"
            assert os.read(ours, 100) == b"\x1b[?2004l"
    finally:
        os.close(theirs)
        os.close(ours)


def test_the_status_follows_a_run() -> None:
    now = [0.0]
    status = RunStatus(lambda: "plan", clock=lambda: now[0])
    assert status.describe_run() == ""
    status.price = lambda usage: Decimal(usage.input) / 100_000
    status.measure_context(ContextUsage("m", 10_000, 500, True, (), 0, 0))
    status.begin("asking the model")
    status(RunStarted("hello"))
    now[0] = 3.4
    assert status.describe_run() == "asking the model · 3 s · 95% context left · mode plan"
    status(TextDelta("Hi"))
    assert status.describe_run().startswith("answering · 3 s")
    status(ArgumentsDelta(0, "write_file", "{"))
    assert status.describe_run().startswith("writing write_file · ")
    status(ModelAnswered("Hi", usage=Usage(2_000, 500)))
    status(CallEvaluated("c", "ask"))
    wanted = "waiting for your answer · 3 s · 2.5k tokens · $0.0200 · 75% context left · mode plan"
    assert status.describe_run() == wanted
    status.end()
    assert status.describe_run() == ""


def test_answers_that_came_before_the_price_was_known_are_counted_once() -> None:
    status = RunStatus(lambda: "default")
    status(ModelAnswered("Hi", usage=Usage(2_000, 500)))
    assert status.cost == 0
    status.price = lambda usage: Decimal(usage.input) / 100_000
    assert status.cost == Decimal("0.02")
    status(ModelAnswered("Ho", usage=Usage(1_000, 5)))
    status.price = None
    status(ModelAnswered("Hm", usage=Usage(1_000, 5)))
    status.price = lambda usage: Decimal(usage.input)
    assert status.cost == Decimal("0.03")


def test_a_file_is_named_in_a_sentence_without_blanks() -> None:
    text = "この@資料.mdを読んで、@src/a.py。ann@例え.jp"
    first, second = find_references(text)
    assert "資料.md" in possible_paths(first) and "src/a.py" in possible_paths(second)
    assert find_open_reference("この@資") == "資"
    assert find_open_reference("ann@資") is None
    assert list(possible_paths("a.py).")) == ["a.py).", "a.py"]


def test_a_file_being_written_is_seen_being_written() -> None:
    beginning = '{"path":"notes.md","content":"# Notes\\n\\nfirst line\\nsecond li'
    assert describe_partial_call("write_file", beginning) == [
        ("▸ write_file notes.md … 4 lines", "bold cyan"),
        ("  │ # Notes", "dim"),
        ("  │ ", "dim"),
        ("  │ first line", "dim"),
        ("  │ second li", "dim"),
    ]
    assert describe_partial_call("read_file", '{"pa') == [("▸ read_file …", "bold cyan")]
    assert describe_partial_call("read_file", "nonsense") == [("▸ read_file …", "bold cyan")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("look at @a.txt and @b/c, please", ["a.txt", "b/c,"]),
        ('see @"two words.txt" (@x)', ["two words.txt", "x)"]),
        ("ada@example.org asked", []),
        ("@a @a", ["a"]),
    ],
)
def test_references_are_found_in_a_message(text: str, found: list[str]) -> None:
    assert find_references(text) == found


def test_paths_are_completed_folder_by_folder() -> None:
    folders: dict[str, Any] = {".": ["docs/", "done.txt", ".git/"], "docs": ["a.md", "b.md"]}
    assert find_open_reference("look at @do") == "do"
    assert find_open_reference("ada@do") is None
    assert complete_path("do", lambda folder: folders[folder]) == ["docs/", "done.txt"]
    assert complete_path("", lambda folder: folders[folder]) == ["docs/", "done.txt"]
    assert complete_path("docs/b", lambda folder: folders[folder]) == ["docs/b.md"]


def test_names_with_blanks_are_completed_in_quotes() -> None:
    folders = {".": ["two words.txt", "my notes/", "more.md"], "my notes": ["a b.md", "c.md"]}
    assert find_open_reference("see @tw") == "tw"
    assert complete_path("tw", lambda folder: folders[folder]) == ['"two words.txt"']
    assert complete_path("my", lambda folder: folders[folder]) == ['"my notes/']
    assert find_open_reference('see @"my notes/a') == '"my notes/a'
    assert complete_path('"my notes/a', lambda folder: folders[folder]) == ['"my notes/a b.md"']
    assert find_references('see @"my notes/a b.md"') == ["my notes/a b.md"]


def test_letters_in_their_order_find_a_name_too() -> None:
    names = ["settings_table.py", "stable.py", "README.md"]
    assert complete_path("st", lambda folder: names) == ["stable.py", "settings_table.py"]
    assert complete_path("readme", lambda folder: names) == ["README.md"]
    assert complete_path("a+", lambda folder: names) == []


def test_shift_tab_goes_through_the_usual_modes() -> None:
    modes = ["default"]
    for _ in range(3):
        modes.append(next_mode(modes[-1]))
    assert modes == ["default", "acceptEdits", "plan", "default"]
    assert next_mode("bypassPermissions") == "default"


async def test_tab_completes_the_only_path_even_where_keys_come_at_once() -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = ChatPrompt(
            commands=dict[str, str],
            complete=lambda command, beginning: (),
            list_folder=lambda folder: ["calc.py", "notes.md"],
            status=str,
            next_mode=lambda: None,
            colour=False,
            plain=False,
        )
        keys.send_text("see @cal\t now\r")
        async with asyncio.timeout(30):
            assert await prompt.read() == "see @calc.py now"
