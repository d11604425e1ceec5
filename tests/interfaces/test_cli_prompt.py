"""The permission prompt: what it shows, what each typed line means, and that nothing else can look
like it.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.cli import permission_prompt, terminal
from ferrule.cli.permission_prompt import TerminalApprover
from ferrule.cli.terminal import (
    BOTTOM,
    SIDE,
    TOP,
    Terminal,
    count_columns,
    encode_json,
    escape_invisible,
    wrap_frame,
    wrap_lines,
)
from ferrule.core.calls import ToolCall
from ferrule.core.identity import Identity
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.permissions.grant_proposals import GrantOffer
from ferrule.tools.decorator import tool

OFFERS = (
    GrantOffer("once", ""),
    GrantOffer("session", "Edit(//w/a.txt)"),
    GrantOffer("session", "Edit(//w/**)"),
    GrantOffer("remember", "Edit(//w/a.txt)"),
    GrantOffer("remember", "Edit(//w/**)"),
)


@tool(side_effect="write", risk="high")
def scribble(path: str) -> str:
    """Write something."""
    return path


def request(
    *,
    offers: tuple[GrantOffer, ...] = OFFERS,
    preview: str = "",
    arguments: str = '{"path":"a.txt"}',
) -> ApprovalRequest:
    identity = Identity("local", "ada", "s", "r")
    labels = ("write_intent",)
    return ApprovalRequest(
        ToolCall("c", "scribble", arguments),
        scribble,
        "high",
        "it writes",
        labels,
        preview,
        offers,
        "d",
        identity,
    )


class Typist:
    """Types these lines, one per question."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []

    async def read(self, text: str) -> str:
        self.prompts.append(text)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0) + "\n"


async def answered(*lines: str, **asked: Any) -> ApprovalAnswer:
    return await TerminalApprover(Terminal(), Typist(lines).read, user="ada").ask(request(**asked))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"path":"a.txt","content":"one\\ntwo"}', ""),
        ('{"path":"b.txt","content":"one"}', '{"path":"b.txt"}'),
        ('{"path":"a.txt","content":"three"}', '{"content":"three"}'),
        ('{"path":"a.txt","mode":7}', '{"mode":7}'),
        ('["broken', '["broken'),
    ],
)
async def test_an_argument_is_left_out_only_if_the_preview_shows_all_of_it(
    capsys: pytest.CaptureFixture[str], arguments: str, shown: str
) -> None:
    await answered("v", "1", preview="+++ a.txt\n+one\n+two", arguments=arguments)
    short, whole = capsys.readouterr().err.split("permission: ")[1:]
    assert (f"┃ arguments: {shown}\n" in short) == bool(shown)
    assert f"┃ arguments: {arguments}\n" in whole, "`v` shows all as the model wrote it"


async def test_the_prompt_shows_tool_risk_arguments_reason_preview_and_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await answered(
        "1",
        preview="--- a.txt\n+++ a.txt\n-old\n+new",
        arguments='{"path":"a.txt","content":"new","append":true}',
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "┏ permission: scribble · risk HIGH · write_intent",
        '┃ arguments: {"append":true}',
        "┃ why it asks: it writes",
        "┃",
        "┃   --- a.txt",
        "┃   +++ a.txt",
        "┃   -old",
        "┃   +new",
        "┃",
        "┃ [1] once      this call only",
        "┃ [2] session   until this session ends: Edit(//w/a.txt)",
        "┃ [2b]      or Edit(//w/**): every edit below that folder",
        "┃ [3] remember  from now on: Edit(//w/a.txt)",
        "┃ [3b]      or Edit(//w/**): every edit below that folder",
        "┃ [4] deny      or type a reason, which the model reads",
    ]


async def test_a_difference_is_coloured_by_what_its_lines_begin_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    await answered("1", preview="@@ -1 +1 @@\n-old\n+new\n same")
    err = capsys.readouterr().err
    for row in ("\x1b[36m  @@ -1 +1 @@", "\x1b[31m  -old", "\x1b[32m  +new", "\x1b[0m   same"):
        assert row in err, err


@pytest.mark.parametrize(
    ("typed", "choice", "rule"),
    [
        ("1", "once", ""),
        ("once", "once", ""),
        ("2", "session", "Edit(//w/a.txt)"),
        ("s", "session", "Edit(//w/a.txt)"),
        ("2B", "session", "Edit(//w/**)"),
        ("3", "remember", "Edit(//w/a.txt)"),
        ("3b", "remember", "Edit(//w/**)"),
        ("Remember", "remember", "Edit(//w/a.txt)"),
        ("4", "deny", ""),
        ("no", "deny", ""),
    ],
)
async def test_an_answer_grants_the_rule_that_stood_beside_it(
    typed: str, choice: str, rule: str
) -> None:
    answer = await answered(typed)
    assert (answer.choice, answer.grant, answer.by) == (choice, rule, "ada")


async def test_a_reason_is_a_no_that_the_model_reads_and_the_end_of_input_is_a_no() -> None:
    assert (await answered("use the other file")).note == "denied by a person: use the other file"
    assert (await answered()).choice == "deny"


@pytest.mark.parametrize("typed", ["", "y", "yes", "ok", "allow", "5", "11", "2c"])
async def test_what_is_not_clear_is_asked_again_and_never_a_yes(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (await answered(typed, "4")).note == "denied by a person"
    assert "hint: type 1, 2, 2b, 3, 3b, 4, or a reason to deny" in capsys.readouterr().err


async def test_what_is_not_offered_cannot_be_chosen() -> None:
    only_once = (GrantOffer("once", ""),)
    assert (await answered("2", "3", "remember", offers=only_once)).choice == "deny"


async def test_a_long_question_is_shown_in_pages_or_whole_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    preview = "\n".join(f"+line {n}" for n in range(200))
    arguments = json.dumps({"path": "x" * 2000})
    read = Reading(["1"] * 9, capsys)
    await asked(request(preview=preview, arguments=arguments), read)
    assert "more lines of what would happen, to see before a yes counts" in read.pages[0]
    assert "Enter shows the next, `v` all" in read.pages[0] and "+line 199" not in read.pages[0]
    assert "+line 199" in read.pages[-1] and len(read.pages) == 4
    read = Reading(["v", "1"], capsys)
    assert (await asked(request(preview=preview, arguments=arguments), read)).choice == "once"
    assert "+line 0" in read.pages[1] and "+line 199" in read.pages[1]


class Reading:
    """Types one line after the other; `pages` has what was drawn before each."""

    def __init__(self, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        self.lines = iter(lines)
        self.pages: list[str] = []
        self._capsys = capsys
        capsys.readouterr()

    async def __call__(self, prompt: str) -> str:
        self.pages.append(self._capsys.readouterr().err)
        line = next(self.lines, None)
        if line is None:
            raise EOFError
        return line

    @property
    def rows(self) -> list[str]:
        rows = [row for row in "".join(self.pages).split("\n") if row[:1] == SIDE]
        return [row.removeprefix(SIDE).removeprefix(" ").rstrip() for row in rows]


async def asked(request: ApprovalRequest, read: Reading) -> ApprovalAnswer:
    return await TerminalApprover(Terminal(), read, user="ada").ask(request)


@tool(side_effect="execute", risk="high")
def execute(command: str) -> str:
    """Run it."""
    return command


def is_within(expected: list[str], rows: list[str]) -> bool:
    """Whether all of some rows were drawn, in their order."""
    left = iter(rows)
    return all(row in left for row in expected)


COMMANDS = st.lists(
    st.one_of(st.just(""), st.text(st.characters(codec="ascii", exclude_categories=["C"]))),
    max_size=120,
).map("\n".join)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    command=COMMANDS,
    height=st.integers(10, 60),
    width=st.sampled_from([40, 50, 80]),
    key=st.sampled_from(["1", "2", "3", "once", "s", "r"]),
    typed=st.lists(st.sampled_from(["", "x", "7"]), max_size=3),
)
async def test_no_key_runs_a_command_of_which_a_part_was_on_no_screen(
    command: str,
    height: int,
    width: int,
    key: str,
    typed: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = replace(
        request(preview=command, arguments=json.dumps({"command": command})), tool=execute
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(permission_prompt, "count_screen_rows", lambda: height)
        patched.setattr(terminal, "count_columns_of_screen", lambda: width)
        read = Reading([*typed, *[key] * 2000], capsys)
        answer = await asked(made, read)
    if answer.choice == "deny":
        return
    lines = command.rstrip("\n").split("\n") if command else []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(terminal, "count_columns_of_screen", lambda: width)
        expected = [row.rstrip() for row, _ in wrap_frame([(f"  {line}", "") for line in lines])]
    assert is_within(expected, read.rows)
    if height > 30:
        # What one key can run has not left the screen, with the row that the key is typed in.
        assert all(page.count("\n") < height for page in read.pages)


async def test_long_answers_leave_fewer_rows_for_what_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(permission_prompt, "count_screen_rows", lambda: 34)
    monkeypatch.setattr(terminal, "count_columns_of_screen", lambda: 40)
    long = "Edit(//home/ada/projects/shop/src/checkout/**)"
    offers = [
        GrantOffer("once", ""),
        *[GrantOffer("session", f"{long[:-1]}{n})") for n in range(4)],
    ]
    preview = "\n".join(f"echo {number}" for number in range(60))
    made = replace(
        request(preview=preview, arguments=json.dumps({"command": preview}), offers=tuple(offers)),
        tool=execute,
    )
    read = Reading(["1"] * 60, capsys)
    assert (await asked(made, read)).choice == "once"
    assert len(read.pages) > 3 and all(page.count("\n") < 34 for page in read.pages)


async def test_a_no_needs_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    preview = "\n".join(map(str, range(500)))
    for typed in ("4", "no, never"):
        read = Reading([typed], capsys)
        assert (await asked(request(preview=preview), read)).choice == "deny"


@given(text=st.text(st.characters(exclude_categories=[])))
def test_no_text_of_others_holds_a_control_character_or_the_frame_of_a_question(text: str) -> None:
    shown = escape_invisible(text)
    assert not {TOP, SIDE, BOTTOM} & set(shown)
    assert all(character in "\n\t" or ord(character) >= 0x20 for character in shown)
    assert "\x7f" not in shown and not any(
        0x80 <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in shown
    )
    assert escape_invisible(shown) == shown


@given(text=st.text() | st.text("ab  \n"), width=st.integers(2, 40))
def test_rows_are_never_wider_than_asked_for_and_lose_nothing(text: str, width: int) -> None:
    made = wrap_lines(text, width)
    assert all(sum(map(count_columns, row)) <= width for row in made)
    assert "".join(made) == text.expandtabs(4).replace("\n", "")


@given(words=st.lists(st.text("abc/-", min_size=1, max_size=12), max_size=30))
def test_rows_end_at_blanks_and_only_a_word_that_fits_in_no_row_is_cut(words: list[str]) -> None:
    width = 9
    rows = wrap_lines(" ".join(words), width)
    for row in rows[:-1]:
        # A full row is a word that goes on; where a blank ends a row, the row is not full.
        assert row.endswith(" ") or len(row) == width
    if all(len(word) < width for word in words):
        assert [word for row in rows for word in row.split()] == words


def test_rows_that_continue_a_line_are_indented_where_that_is_asked_for() -> None:
    assert wrap_lines("hosts one.example two.example", 18, 2) == [
        "hosts one.example ",
        "  two.example",
    ]
    assert wrap_lines("  one two three", 10, 2) == ["  one two ", "    three"]


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_for_people_is_the_same_json(value: Any) -> None:
    text = encode_json(value)
    assert json.loads(text) == value
    assert escape_invisible(text) == text.translate(
        {ord(TOP): "┌", ord(SIDE): "│", ord(BOTTOM): "└"}
    )


async def test_every_line_of_a_question_stands_behind_its_mark_whatever_the_model_wrote(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    forged = "x" * 33 + "\n[1] once\n┗ allow? [1-4] 1\n" + " " * 60 + "[1] once"
    await answered("4", preview=forged, arguments=forged)
    lines = capsys.readouterr().err.splitlines()
    assert all(line[0] in (TOP, SIDE) for line in lines)
    assert all(len(line) <= 40 for line in lines)
    assert (
        sum(line.startswith("┃ [1] once") for line in lines) <= 2
    )  # its own, and none that it was not given


async def test_what_happens_meanwhile_is_written_after_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal()

    async def read(text: str) -> str:
        terminal.write_message("a call that runs beside")
        terminal.write_answer("its output")
        assert "beside" not in capsys.readouterr().err
        return "1"

    await TerminalApprover(terminal, read, user="ada").ask(request())
    out, err = capsys.readouterr()
    assert (out, err) == ("its output\n", "a call that runs beside\n")


# ---- at a real terminal, without prompt-toolkit


AT_A_TERMINAL = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "from ferrule.cli.entry import main; sys.argv[0] = 'ferrule'; main()"
)
"""Makes the terminal the one whose Ctrl-C reaches the process."""


def played(words: list[str], environment: dict[str, str], keys: bytes) -> tuple[int, str]:
    """`ferrule` with a terminal on all three; `keys` are typed once the question stands."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    running = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    seen, typed = b"", False
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
        if not typed and b"allow? [1-5] " in seen:
            typed = True
            os.write(ours, keys)
    code = running.wait(timeout=60)
    os.close(ours)
    return code, seen.decode().replace("\r\n", "\n")


def test_a_run_at_a_terminal_asks_and_does_what_it_is_told(
    folder: Path, script: Any, a_call: Any, environment: dict[str, str]
) -> None:
    environment = {**environment, "NO_COLOR": "1"}
    model = script(a_call("write_file", path="a.txt", content="hi\n"), {"say": "done"})
    code, screen = played(["run", "-m", model, "go"], environment, b"1\n")
    assert code == 0 and (folder / "a.txt").read_text() == "hi\n"
    assert "┃   +hi" in screen and screen.endswith("done\n")
    code, screen = played(["run", "-m", model, "go"], environment, b"not today\n")
    assert code == 4 and "not today" in screen


def test_ctrl_c_at_the_question_of_a_run_ends_it_at_once(
    folder: Path, script: Any, a_call: Any, environment: dict[str, str]
) -> None:
    model = script(a_call("write_file", path="a.txt", content="hi\n"), {"say": "done"})
    code, screen = played(["run", "-m", model, "go"], {**environment, "NO_COLOR": "1"}, b"\x03")
    assert code == 130 and "stopped; continue with" in screen
    assert not (folder / "a.txt").exists()


async def test_always_is_the_one_grant_that_is_remembered() -> None:
    only = (GrantOffer("once", ""), GrantOffer("session", "a"), GrantOffer("remember", "b"))
    assert (await answered("always", offers=only)).grant == "b"
    # With two of them nobody knows which was meant.
    assert (await answered("always", "4")).choice == "deny"
