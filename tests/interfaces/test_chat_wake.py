"""What ends in the background is shown in the chat and wakes the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from ferrule.cli.chat import loop
from ferrule.cli.chat.chat_state import Chat
from ferrule.cli.chat.hot_reload import ChatReloader
from ferrule.cli.chat.prompt import ChatPrompt
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.core.messages import UserMessage

END = "`npm test` (%1) ended with exit status 0 after 3.0 s with 9 bytes of output; the end of it:\nok"


class PersonAway:
    """Types lines, and is away after the last one until the reading is ended."""

    def __init__(self, chat: Chat, *lines: str, ends: int) -> None:
        self.chat = chat
        self.lines = list(lines)
        self.ends = ends
        self.woken = asyncio.Event()
        self.typed = ""
        chat.wake = self.woken.set

    async def read(self) -> str:
        if self.lines:
            return self.lines.pop(0)
        if not self.ends:
            raise EOFError
        self.ends -= 1
        self.woken.clear()
        self.chat.session.driver.inbox.put(END, "run_command", ended=True)
        async with asyncio.timeout(30):
            await self.woken.wait()
        return ""


@pytest.fixture
async def chat(tmp_path: Path, script: Any, request: pytest.FixtureRequest) -> AsyncIterator[Chat]:
    model = script(*({"say": f"answer {number}"} for number in range(request.param)))
    assembly = assemble_at_terminal({"model": model, "workspace": str(tmp_path)})
    made = Chat(assembly, assembly.open_session(None))
    made.follow_session()
    yield made
    await assembly.close(made.session)


async def read_lines(chat: Chat, prompt: Any) -> None:
    async def ask(text: str) -> str:
        raise EOFError

    await loop.read_lines(chat, prompt, ChatReloader(chat, {}, ask), resumed=False)


@pytest.mark.parametrize("chat", [2], indirect=True)
async def test_an_end_is_shown_and_wakes_the_model_that_reads_its_output(
    chat: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    await read_lines(chat, PersonAway(chat, "hello", ends=1))
    texts = [message.text for message in chat.session.history]
    assert texts[:2] == ["hello", "answer 0"]
    assert texts[2].startswith('<notice source="run_command">\n' + END)
    assert texts[2].endswith(loop.WAKE) and texts[3] == "answer 1"
    shown = capsys.readouterr()
    line = "! background: `npm test` (%1) ended with exit status 0 after 3.0 s"
    assert (shown.out + shown.err).count(line) == 1


@pytest.mark.parametrize("chat", [1 + loop.MOST_WAKES], indirect=True)
async def test_nobody_pays_for_a_model_that_wakes_itself_for_ever(chat: Chat) -> None:
    await read_lines(chat, PersonAway(chat, "hello", ends=loop.MOST_WAKES + 5))
    texts = [message.text for message in chat.session.history if isinstance(message, UserMessage)]
    assert sum(text.endswith(loop.WAKE) for text in texts) == loop.MOST_WAKES == 20


async def test_what_is_being_typed_is_left_alone() -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        prompt = ChatPrompt(
            commands=dict[str, str],
            complete=lambda command, beginning: (),
            list_folder=lambda folder: [],
            status=str,
            next_mode=lambda: None,
            colour=False,
            plain=False,
        )
        prompt.wake()
        async with asyncio.timeout(30):
            reading = asyncio.ensure_future(prompt.read())
            while not prompt.is_reading:
                await asyncio.sleep(0)
            prompt.wake()
            assert await reading == ""
            reading = asyncio.ensure_future(prompt.read())
            while not prompt.is_reading:
                await asyncio.sleep(0)
            keys.send_text("so")
            while prompt.typed != "so":
                await asyncio.sleep(0)
            prompt.wake()
            keys.send_text(" on\r")
            assert await reading == "so on"
