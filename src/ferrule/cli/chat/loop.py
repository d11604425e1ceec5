"""The chat loop: read a line, send it to the model or run its slash command, survive errors."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.shortcuts import CompleteStyle

from ferrule.cli.line_input import discard_typed_input
from ferrule.cli.live_output import LiveOutput, format_arguments
from ferrule.cli.permission_prompt import TerminalApprover
from ferrule.cli.run.one_shot import cancel_on_signals, format_missing_tools
from ferrule.cli.setup.dialogue import offer_setup
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.core.errors import FerruleError, RunCancelled
from ferrule.core.events import JournalRecord
from ferrule.runtime.assemble import current_user, find_session_model
from ferrule.storage import paths
from ferrule.storage.export.steps import (
    AnswerStep,
    CallStep,
    MessageStep,
    NoticeStep,
    Step,
    StepReader,
)
from ferrule.tools.context import HIDDEN_TOPICS

from .hot_reload import ChatReloader
from .slash_commands import COMMANDS, Chat, suggest_command

MAX_RESULT_LINE = 200
"""How many characters of a result's first line are shown."""

_EXIT_COMMANDS = ("/exit", "/quit")
RECALLED_LINES = 24
"""How many lines of the earlier conversation `--resume` shows."""


async def run_chat(options: dict[str, Any]) -> int:
    """Run the chat until the person leaves. Return the exit code."""
    session_id = options.get("resume_id")
    if session_id and not options.get("model"):
        options["model"] = find_session_model(session_id)
    await offer_setup(options)
    prompt = _make_prompt()
    assembly = assemble_at_terminal(options, interruptible=True)
    chat = Chat(assembly, assembly.open_session(session_id))
    approver = TerminalApprover(
        assembly.terminal, lambda text: _read_answer(chat, text), user=current_user()
    )
    assembly.agent.approver = approver
    chat.session.set_approver(approver)
    show_events(chat, reasoning=bool(options.get("reasoning")))
    _greet(chat)
    reloader = ChatReloader(chat, options, lambda text: _read_answer(chat, text))
    task = asyncio.ensure_future(_read_lines(chat, prompt, reloader, resumed=bool(session_id)))
    succeeded = False
    with cancel_on_signals(task, interrupts=False) as exit_codes:
        try:
            await task
            succeeded = True
        except asyncio.CancelledError:
            return exit_codes[-1] if exit_codes else 130
        finally:
            await assembly.close(chat.session, strict=succeeded)
    assembly.terminal.write_progress(
        f"this session: ferrule chat --resume {chat.session.id[:12]}", style="dim"
    )
    return 0


async def _read_lines(
    chat: Chat, prompt: PromptSession[str], reloader: ChatReloader, *, resumed: bool
) -> None:
    if resumed:
        await _continue_session(chat)
    while True:
        try:
            line = (await prompt.prompt_async(FormattedText([("bold", "› ")]))).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line and not await _handle_line(chat, line, reloader):
            return


def _make_prompt() -> PromptSession[str]:
    folder = paths.make_private_folder(paths.state())
    history = folder / "chat-history"
    history.touch(mode=0o600)
    completer = WordCompleter([f"/{name}" for name in COMMANDS], sentence=True)
    return PromptSession(
        history=FileHistory(str(history)),
        completer=completer,
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
    )


async def _read_answer(chat: Chat, text: str) -> str:
    """Read the answer to a question. Keys typed before the question appeared are dropped.

    Ctrl-C denies and stops the turn, which withdraws the question.
    """
    # A prompt of its own: answers do not belong in the history of messages.
    prompt: PromptSession[str] = PromptSession()
    clear_typeahead(prompt.input)
    discard_typed_input()
    try:
        # With its own SIGINT handler, prompt-toolkit would remove ours when the prompt ends.
        return await prompt.prompt_async(
            FormattedText([("bold fg:ansiyellow", text)]), handle_sigint=False
        )
    except KeyboardInterrupt:
        if chat.stop_turn is None:
            raise EOFError from None
    chat.stop_turn()
    return await asyncio.get_running_loop().create_future()


def show_events(chat: Chat, *, reasoning: bool = False) -> None:
    """Show the session's events from now on."""
    chat.show = LiveOutput(
        chat.assembly.terminal,
        lambda call_id: chat.session.find_call(call_id),  # noqa: PLW0108  the chat may change its session
        live=True,
        reasoning=reasoning,
    )
    chat.session.observe(chat.show)


def _greet(chat: Chat) -> None:
    agent = chat.assembly.agent
    talk = chat.assembly.terminal.write_progress
    root = agent.workspace.root if agent.workspace else "no folder"
    talk(f"ferrule · {agent.model} · {root} · mode {agent.gate.mode}", style="bold")
    talk("/help for commands, Ctrl-D to leave", style="dim")


async def _continue_session(chat: Chat) -> None:
    """Show the end of the earlier conversation, and finish what it left open."""
    for line in recall_lines(chat):
        chat.assembly.terminal.write_progress(line, style="dim")
    await _interruptible(chat, chat.session.resume(), turn=True)


def recall_lines(chat: Chat) -> Iterator[str]:
    """Return the last lines of the conversation, as the chat showed them."""
    lines = format_history(chat.assembly.agent.journal.records(chat.session.id))
    left_out = len(lines) - RECALLED_LINES
    if left_out > 0:
        yield f"… {left_out} earlier lines: ferrule sessions show {chat.session.id[:12]}"
    yield from lines[-RECALLED_LINES:]
    yield ""


async def _handle_line(chat: Chat, line: str, reloader: ChatReloader) -> bool:
    """Carry out one line of the person. Return False to leave the chat."""
    if line.split(" ")[0] not in _EXIT_COMMANDS and not await reloader.reload_changes():
        return True
    if not line.startswith("/"):
        await _interruptible(chat, _run_message(chat, line), turn=True)
        return True
    name, _, rest = line[1:].partition(" ")
    if name in ("exit", "quit"):
        return False
    command = COMMANDS.get(name)
    if command is None:
        chat.assembly.terminal.write_message(
            f"there is no command `/{name}`{suggest_command(name)} /help lists the commands"
        )
    else:
        await _interruptible(chat, command.run(chat, rest.strip()))
    return True


async def _run_message(chat: Chat, line: str) -> None:
    result = await chat.session.run(line)
    if result.missing:
        chat.assembly.terminal.write_message(
            f"! not done: {format_missing_tools(result.missing)} never succeeded", style="yellow"
        )


async def _interruptible(chat: Chat, work: Awaitable[Any], *, turn: bool = False) -> None:
    """Await `work` so that Ctrl-C stops it.

    Ctrl-C stops the running tool call first; it stops the whole turn if no call runs, or when
    pressed again before the call ended.
    """
    task = asyncio.ensure_future(work)
    stopped_at: int | None = None

    def interrupt() -> None:
        nonlocal stopped_at
        if stopped_at != chat.show.finished_calls and chat.session.stop_call():
            stopped_at = chat.show.finished_calls
            chat.assembly.terminal.write_message(
                " ! stopping the call; Ctrl-C again stops the turn", style="yellow"
            )
        else:
            task.cancel()

    chat.stop_turn = task.cancel if turn else None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    say = chat.assembly.terminal.write_message
    try:
        await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        say("! turn stopped", style="yellow")
    except RunCancelled as error:
        say(f"! {error.detail}", style="yellow")
    except FerruleError as error:
        say(f"error: {error}", style="red")
    except Exception as error:  # noqa: BLE001  boundary: a defect must not end the conversation
        say(f"error: a defect in Ferrule: {type(error).__name__}: {error}", style="red")
    finally:
        chat.stop_turn = None
        loop.remove_signal_handler(signal.SIGINT)


def format_history(records: Iterable[JournalRecord]) -> list[str]:
    """List a conversation's messages, answers, tool calls with their outcome, and notices.

    Context that a person added beside messages is left out.
    """
    story = StepReader()
    steps = [step for record in records for step in story.feed(record)]
    return [line for step in (*steps, *story.finish()) for line in _lines(step)]


def _lines(step: Step) -> list[str]:
    match step:
        case MessageStep():
            return [f"› {step.text}"]
        case AnswerStep():
            return step.text.split("\n")
        case CallStep():
            return [f"▸ {step.call.tool} {format_arguments(step.call)}", f"  {_outcome(step)}"]
        case NoticeStep() if step.topic not in HIDDEN_TOPICS:
            return [f"! {step.topic}: {step.text}"]
        case _:
            return []


def _outcome(step: CallStep) -> str:
    if step.result is None:
        return "✗ outcome unknown" if step.started else "✗ not run"
    if not step.result.success:
        return f"✗ {step.result.error_type}: {_first_line(step.result.error_message or '')}"
    return f"✓ {_first_line(step.result.to_text())}"


def _first_line(text: str) -> str:
    line, more_lines, _ = text.strip().partition("\n")
    is_cut = more_lines or len(line) > MAX_RESULT_LINE
    return line[:MAX_RESULT_LINE] + ("…" if is_cut else "")
