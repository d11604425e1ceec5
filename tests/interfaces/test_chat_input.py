"""What a person types in the chat: pasted texts, Ctrl-C at the prompt, and where exports go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import Application, create_app_session, get_app
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from ferrule.cli.chat import loop, session_commands
from ferrule.cli.chat.chat_state import Chat
from ferrule.cli.chat.hot_reload import ChatReloader
from ferrule.cli.chat.prompt import ChatPrompt
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.storage import paths


def make_prompt(*names: str) -> ChatPrompt:
    return ChatPrompt(
        commands=dict[str, str],
        complete=lambda command, beginning: (),
        list_folder=lambda folder: names,
        status=str,
        next_mode=lambda: None,
        colour=False,
        plain=False,
    )


async def test_a_long_paste_stands_as_a_mark_and_is_sent_whole() -> None:
    long = "\n".join(f"line {number}" for number in range(200))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = make_prompt()
        keys.send_text(f"why? \x1b[200~{long}\x1b[201~ and \x1b[200~short\x1b[201~\r")
        async with asyncio.timeout(30):
            assert await prompt.read() == f"why? {long} and short"
        assert prompt.mark_paste("a\r\nb") == "a\nb"
        assert prompt.mark_paste("x" * 5_000) == "[pasted 5000 characters #2]"


async def test_keys_that_were_pressed_before_the_prompt_are_messages_of_their_own() -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = make_prompt()
        prompt.press_keys("first\rsecnd\x7f\x7fond\r\x1b[200~a\rb\x1b[201~\rhalf")
        async with asyncio.timeout(30):
            assert await prompt.read() == "first"
            assert await prompt.read() == "second"
            assert await prompt.read() == "a\nb"
            keys.send_text(" of it\r")
            assert await prompt.read() == "half of it"


async def test_pasted_colours_and_bells_are_text_and_do_nothing() -> None:
    pasted = "\x1b[31merror\x1b[0m in\x07\nline two"
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = make_prompt()
        keys.send_text(f"why? \x1b[200~{pasted}\x1b[201~\r")
        async with asyncio.timeout(30):
            assert await prompt.read() == f"why? {pasted}"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("one\\\rtwo\r", "one\ntwo"),
        ("C:\\\\\r", "C:\\\\"),
        ("a \\ b\r", "a \\ b"),
    ],
)
async def test_a_backslash_before_enter_begins_another_line(keys: str, message: str) -> None:
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        prompt = make_prompt()
        typed.send_text(keys)
        async with asyncio.timeout(30):
            assert await prompt.read() == message


async def test_tab_takes_the_only_name_of_an_open_list_and_enter_sends() -> None:
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        prompt = make_prompt("b.py", "notes.md")
        reading = asyncio.ensure_future(prompt.read())
        typed.send_text("explain @b")
        async with asyncio.timeout(30):
            while not get_app().current_buffer.complete_state:
                await asyncio.sleep(0.01)
            typed.send_text("\t\r")
            assert await reading == "explain @b.py"


async def test_ctrl_z_goes_back_to_the_shell_and_is_no_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suspended: list[bool] = []
    monkeypatch.setattr(Application, "suspend_to_background", lambda self: suspended.append(True))
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        prompt = make_prompt()
        typed.send_text("half \x1aa message\r")
        async with asyncio.timeout(30):
            assert await prompt.read() == "half a message"
    assert suspended == [True]


async def test_ctrl_d_leaves_only_from_an_empty_prompt() -> None:
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        prompt = make_prompt()
        typed.send_text("half\x04 a message\r")
        async with asyncio.timeout(30):
            assert await prompt.read() == "half a message"


class Person:
    """Types lines; `^C` is Ctrl-C, and `abc^C` where `abc` was typed before it."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.typed = ""

    async def read(self) -> str:
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        self.typed = line.removesuffix("^C")
        if line.endswith("^C"):
            raise KeyboardInterrupt
        return line


@pytest.fixture
async def chat(tmp_path: Path, script: Any) -> AsyncIterator[Chat]:
    assembly = assemble_at_terminal({"model": script({"say": "hello"}), "workspace": str(tmp_path)})
    made = Chat(assembly, assembly.open_session(None))
    made.follow_session()
    yield made
    await assembly.close(made.session)


async def read_lines(chat: Chat, person: Person) -> None:
    async def ask(text: str) -> str:
        raise EOFError

    await loop.read_lines(chat, person, ChatReloader(chat, {}, ask), resumed=False)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["^C", "^C", "hi"], ["hi"]),
        (["^C", "hi", "^C"], []),
        (["abc^C", "abc^C", "^C", "hi"], []),
        (["abc^C", "^C", "^C", "hi"], ["hi"]),
    ],
)
async def test_ctrl_c_twice_at_an_empty_prompt_leaves(
    chat: Chat, lines: list[str], left: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    person = Person(*lines)
    if "hi" in left:
        await chat.session.run("first")
    await read_lines(chat, person)
    assert person.lines == left
    shown = capsys.readouterr()
    assert "Ctrl-C again leaves" in shown.out + shown.err


async def test_an_export_without_a_name_goes_beside_the_journal_and_not_into_the_project(
    chat: Chat, tmp_path: Path
) -> None:
    await chat.session.run("hi")
    before = set(tmp_path.iterdir())
    await session_commands.export(chat, "")
    [file] = (paths.state() / "exports").iterdir()
    assert "hello" in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert set(tmp_path.iterdir()) == before
    await session_commands.export(chat, "talk.md")
    assert (tmp_path / "talk.md").read_text() == file.read_text()
