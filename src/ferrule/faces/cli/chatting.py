"""The chat loop: read a line, run it or carry out its slash command, survive whatever comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.output import DummyOutput

from ferrule.core.errors import FerruleError, RunCancelled
from ferrule.engine.session import Session
from ferrule.store import paths

from .approve import TerminalApprover
from .assemble import Assembly, assemble, person
from .show import Show
from .slash import COMMANDS, Chat


async def converse(options: dict[str, Any]) -> int:
    """Talk until the person leaves; the exit code."""
    lines = _lines()
    assembly = assemble(options, interruptible=True)
    approver = TerminalApprover(assembly.terminal, lambda text: _ask(lines, text), user=person())
    assembly.agent.approver = approver
    session = assembly.open(options.get("resume_id"))
    chat = Chat(assembly, session)
    show(chat, reasoning=bool(options.get("reasoning")))
    _greet(assembly, session)
    try:
        if options.get("resume_id"):
            await _interruptible(chat, chat.session.resume())
        while True:
            try:
                line = (await lines.prompt_async(FormattedText([("bold", "› ")]))).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            if line and not await _one(chat, line):
                break
    finally:
        chat.session.close()
        await assembly.agent.close()
    assembly.terminal.talk(f"this session: ferrule chat --resume {chat.session.id[:12]}", style="dim")
    return 0


def _lines() -> PromptSession[str]:
    folder = paths.state()
    paths.private_folder(folder)
    words = WordCompleter([f"/{name}" for name in COMMANDS], sentence=True)
    return PromptSession(history=FileHistory(str(folder / "chat-history")), completer=words)


async def _ask(lines: PromptSession[str], text: str) -> str:
    try:
        # A question of its own: answers do not belong into the history of messages.
        return await PromptSession[str](output=lines.output or DummyOutput()).prompt_async(text)
    except KeyboardInterrupt:
        raise EOFError from None


def show(chat: Chat, *, reasoning: bool = False) -> None:
    """Draw the session's events from now on."""
    chat.session.driver.log.observer = Show(
        chat.assembly.terminal, chat.assembly.find(chat.session), reasoning=reasoning
    )


def _greet(assembly: Assembly, session: Session) -> None:
    talk = assembly.terminal.talk
    root = assembly.agent.workspace.root if assembly.agent.workspace else "no folder"
    talk(f"ferrule · {assembly.agent.model} · {root} · mode {assembly.agent.gate.mode}", style="bold")
    talk("/help for commands, Ctrl-D to leave", style="dim")


async def _one(chat: Chat, line: str) -> bool:
    """One line of the person; False to leave."""
    if line.startswith("/"):
        name, _, rest = line[1:].partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            chat.assembly.terminal.say(f"there is no /{name}; /help lists the commands")
            return True
        if name in ("exit", "quit"):
            return False
        await _interruptible(chat, command.carry_out(chat, rest.strip()))
        return True
    await _interruptible(chat, chat.session.run(line))
    return True


async def _interruptible(chat: Chat, work: Awaitable[Any]) -> None:
    """Ctrl-C stops the running call first, the whole turn if none runs or when pressed again."""
    task = asyncio.ensure_future(work)
    pressed = 0

    def interrupt() -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1 or not chat.session.driver.stop_call():
            task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        await task
    except asyncio.CancelledError:
        chat.assembly.terminal.say("! turn stopped", style="yellow")
    except RunCancelled as error:
        chat.assembly.terminal.say(f"! {error.detail}", style="yellow")
    except FerruleError as error:
        chat.assembly.terminal.say(f"error: {error}", style="red")
    finally:
        loop.remove_signal_handler(signal.SIGINT)
