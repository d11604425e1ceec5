"""The chat loop: read a line, send it to the model or run its slash command, survive errors."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ferrule.cli.permission_prompt import TerminalApprover
from ferrule.cli.run.one_shot import cancel_on_signals, format_missing_tools
from ferrule.cli.terminal_agent import TerminalAssembly, assemble_at_terminal
from ferrule.cli.tool_cards import format_arguments
from ferrule.core.errors import ConfigError, FerruleError, LimitReached, RunCancelled, ToolFailed
from ferrule.core.events import JournalRecord
from ferrule.core.extras import describe_missing
from ferrule.core.limits import GO_ON
from ferrule.core.media import Content, Media
from ferrule.core.similar_names import suggest_names
from ferrule.models.prices import find_price
from ferrule.runtime.assemble import current_user
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.resumed_sessions import find_session_model
from ferrule.storage.export.steps import (
    AnswerStep,
    CallStep,
    MessageStep,
    NoticeStep,
    Step,
    StepReader,
)
from ferrule.tools.context import HIDDEN_TOPICS

from .chat_state import Chat
from .chat_terminal import ChatTerminal
from .file_references import find_references, looks_like_path, possible_paths
from .hot_reload import ChatReloader
from .pictures import is_medium, show_picture
from .prompt import ChatPrompt, wait_forever
from .slash_commands import (
    COMMANDS,
    complete_argument,
    describe_hidden_skills,
    find_commands,
    next_mode,
)
from .status import SEPARATOR
from .typed_ahead import take_typed_lines, without_echo

with lazy_imports():
    from ferrule.cli.setup import dialogue

MAX_RESULT_LINE = 200
"""How many characters of a result's first line are shown."""
WAKE = (
    "What you left in the background has ended, see the notice. Go on if you waited for it; "
    "otherwise say in a sentence what came of it."
)
"""Wakes the model."""
MOST_WAKES = 20
"""How often the model is woken before the person says something again."""
_EXIT_COMMANDS = ("/exit", "/quit")
RECALLED_LINES = 24
"""How many lines of the earlier conversation `--resume` shows."""


async def run_chat(options: dict[str, Any]) -> int:
    """Run the chat until the person leaves. Return the exit code."""
    session_id = options.get("resume_id")
    if session_id and not options.get("model"):
        options["model"] = find_session_model(session_id)
    if not options.get("model"):
        await dialogue.offer_setup(options)
    with without_echo():
        return await _run_conversation(options, session_id, take_typed_lines())


async def _run_conversation(options: dict[str, Any], session_id: str | None, typed: str) -> int:
    """Run the chat with keys that were typed before it. Return the exit code."""
    terminal = ChatTerminal(quiet=bool(options.get("quiet")), plain=bool(options.get("plain")))
    assembly = assemble_at_terminal(options, interruptible=True, terminal=terminal)
    if options.get("continued"):
        session_id = _find_last_session(assembly)
    chat = Chat(assembly, assembly.open_session(session_id))
    prompt = _make_prompt(chat, terminal)
    prompt.press_keys(typed)
    chat.choose = lambda title, options: _choose(chat, prompt, title, options)
    chat.ask = lambda text: _read_answer(chat, prompt, text)
    chat.wake = prompt.wake
    chat.show.shows_reasoning = bool(options.get("reasoning"))
    terminal.status = chat.status.describe_run
    approver = TerminalApprover(terminal, chat.ask, user=current_user())
    assembly.agent.approver = approver
    chat.session.approvals.set_approver(approver)
    chat.follow_session()
    _greet(chat)
    reloader = ChatReloader(chat, options, chat.ask)
    task = asyncio.ensure_future(read_lines(chat, prompt, reloader, resumed=bool(session_id)))
    succeeded = False
    with cancel_on_signals(task, interrupts=False) as exit_codes:
        try:
            await task
            succeeded = True
        except asyncio.CancelledError:
            return exit_codes[-1] if exit_codes else 130
        finally:
            await assembly.close(chat.session, strict=succeeded)
    if chat.session.is_recorded:
        terminal.write_progress(
            f"this session: ferrule chat --resume {chat.session.id[:12]}", style="dim"
        )
    return 0


def _find_last_session(assembly: TerminalAssembly) -> str:
    """Return the conversation that was used last in this folder."""
    root = str(assembly.settings.workspace)
    for row in assembly.agent.journal.sessions(user=current_user(), limit=500):
        if row.workspace == root and row.runs:
            return row.session
    raise ConfigError(
        f"there is no conversation to continue in `{root}`",
        hint="start one with `ferrule chat`; `ferrule sessions list` shows those of other folders",
    )


async def read_lines(
    chat: Chat, prompt: ChatPrompt, reloader: ChatReloader, *, resumed: bool
) -> None:
    """Read what the person types until they leave, and wake the model between."""
    if resumed:
        # A new conversation is measured when something is in it: that would load the model's client
        # and encode all tools before the person has said a word.
        await _measure(chat)
        await _continue_session(chat)
    woken = 0
    wants_to_leave = False
    while True:
        if chat.has_ended_work and woken < MOST_WAKES:
            woken += 1
            chat.has_ended_work = False
            await _send(chat, WAKE)
            await _measure(chat)
        try:
            line = (await prompt.read()).strip()
        except KeyboardInterrupt:
            if wants_to_leave:
                return
            wants_to_leave = not prompt.typed
            if wants_to_leave:
                chat.assembly.terminal.write_message("Ctrl-C again leaves", style="dim")
            continue
        except EOFError:
            return
        wants_to_leave = False
        if line:
            woken = 0
        if line and not await _handle_line(chat, line, reloader):
            return
        await _measure(chat)


async def _measure(chat: Chat) -> None:
    """Find out what is left of the context, for the status line."""
    with suppress(FerruleError):  # a model that cannot be reached says so when it is asked
        chat.status.measure_context(await chat.session.context_usage())


async def _find_price(chat: Chat) -> None:
    """Find the model's price, for the status line."""
    with suppress(FerruleError):  # a broken file of prices says so when something depends on it
        chat.status.price = await asyncio.to_thread(find_price, chat.session.model)


def _make_prompt(chat: Chat, terminal: ChatTerminal) -> ChatPrompt:
    def describe_state() -> str:
        return SEPARATOR.join([chat.session.model, *chat.status.describe_parts()])

    return ChatPrompt(
        commands=lambda: {name: command.help for name, command in find_commands(chat).items()},
        complete=partial(complete_argument, chat),
        list_folder=lambda folder: _list_folder(chat, folder),
        status=describe_state,
        next_mode=lambda: chat.session.set_mode(next_mode(chat.session.mode)),
        colour=terminal.colour,
        plain=terminal.plain,
    )


def _list_folder(chat: Chat, folder: str) -> list[str]:
    """Return the names in a folder that tools may read; none if it cannot be listed."""
    workspace = chat.assembly.agent.workspace
    if workspace is None:
        return []
    try:
        entries = workspace.restrict(chat.assembly.agent.gate.find_refusal).entries(folder)
    except (ToolFailed, OSError):
        return []
    names = [(entry.path.rpartition("/")[2], entry.kind) for entry in entries]
    return sorted(f"{name}/" if kind == "dir" else name for name, kind in names)


async def _read_answer(chat: Chat, prompt: ChatPrompt, text: str) -> str:
    """Read the answer to a question.

    Ctrl-C denies and stops the turn, which withdraws the question.
    """
    try:
        # Nothing may be painted over what is typed.
        with chat.assembly.terminal.hold_output():
            return await prompt.ask(text)
    except KeyboardInterrupt:
        if chat.stop_turn is None:
            raise EOFError from None
    chat.stop_turn()
    return await wait_forever()


async def _choose(
    chat: Chat, prompt: ChatPrompt, title: str, options: Sequence[tuple[str, str]]
) -> str:
    """Have one of some values chosen; "" for none."""
    with chat.assembly.terminal.hold_output():
        return await prompt.choose(title, options)


def _greet(chat: Chat) -> None:
    agent = chat.assembly.agent
    talk = chat.assembly.terminal.write_progress
    root = agent.workspace.root if agent.workspace else "no folder"
    talk(f"ferrule · {agent.model} · {root} · mode {agent.gate.mode}", style="bold")
    talk("/help for commands and keys, Ctrl-D to leave", style="dim")
    if hidden := describe_hidden_skills(chat):
        talk(f"! {hidden}", style="yellow")


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
    if line.startswith("!"):
        line = f"/run {line[1:].strip()}"
    if not line.startswith("/"):
        await _send(chat, line)
        return True
    name, *following = line[1:].split(maxsplit=1) or [""]
    rest = "".join(following)
    if name in ("exit", "quit"):
        return False
    commands_here = find_commands(chat)
    command = commands_here.get(name)
    if command is None:
        commands = [f"/{one}" for one in commands_here]
        suggestion = suggest_names(f"/{name}", commands, "`/help` lists the commands", cutoff=0.5)
        chat.assembly.terminal.write_message(f"there is no command `/{name}`; {suggestion}")
        return True
    await _interruptible(chat, command.run(chat, rest.strip()))
    if chat.next_message:
        message, chat.next_message = chat.next_message, ""
        await _send(chat, message)
    return True


async def _send(chat: Chat, text: str) -> None:
    """Send a message, and go on after each limit that the person raises."""
    attached: list[Media] = []
    await _interruptible(chat, _add_files(chat, text, attached))
    message: Content = [text, *attached] if attached else text
    while message:
        limits: list[LimitReached] = []
        await _interruptible(chat, _run_message(chat, message, limits), turn=True)
        message = GO_ON if limits and await _asks_to_go_on(chat, limits[0]) else ""


async def _add_files(chat: Chat, text: str, attached: list[Media]) -> None:
    """Give the model the files that a message names with `@`.

    Pictures, sounds and PDFs become part of the message: they are put into `attached`.
    """
    workspace = chat.assembly.agent.workspace
    for reference in find_references(text):
        for path in possible_paths(reference):
            try:
                kind = workspace.stat(path).kind if workspace is not None else ""
            except (ToolFailed, OSError):
                continue
            name = "files" if kind == "dir" else "read"
            chat.assembly.terminal.write_progress(f"▸ @{path}", style="bold cyan")
            if kind == "file" and workspace is not None and is_medium(workspace, path):
                attached.append(Media.from_path(path))
                show_picture(chat.assembly.terminal, workspace, path)
                break
            await COMMANDS[name].run(chat, path)
            break
        else:
            if looks_like_path(reference):
                message = f"! there is no @{reference} here: only its name is sent"
                chat.assembly.terminal.write_message(message, style="yellow")


async def _run_message(chat: Chat, message: Content, limits: list[LimitReached]) -> None:
    """Run one message. A limit that ends it is put into `limits`."""
    # Meanwhile: the table of prices takes long to load, and nobody waits for it.
    pricing = asyncio.create_task(_find_price(chat))
    try:
        result = await chat.session.run(message)
    except LimitReached as limit:
        limits.append(limit)
        return
    finally:
        await pricing
    if result.missing:
        chat.assembly.terminal.write_message(
            f"! not done: {format_missing_tools(result.missing)} never succeeded", style="yellow"
        )


async def _asks_to_go_on(chat: Chat, limit: LimitReached) -> bool:
    """Ask whether the run goes on with its limit anew."""
    chat.assembly.terminal.write_message(f"! {limit.detail}", style="yellow")
    try:
        answer = await chat.ask("continue, with as much again? [Y/n] ")
    except EOFError:
        answer = "n"
    return answer.strip().lower() in ("", "y", "yes")


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
    chat.status.begin("asking the model" if turn else "working")
    try:
        with without_echo(), chat.assembly.terminal.live():
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
        known = describe_missing(error)
        said = known or f"a defect in Ferrule: {type(error).__name__}: {error}"
        say(f"error: {said}", style="red")
    finally:
        chat.stop_turn = None
        chat.status.end()
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
    if step.result.exit_status:
        return f"✗ exit status {step.result.exit_status}: {_first_line(step.result.to_text())}"
    return f"✓ {_first_line(step.result.to_text())}"


def _first_line(text: str) -> str:
    line, more_lines, _ = text.strip().partition("\n")
    is_cut = more_lines or len(line) > MAX_RESULT_LINE
    return line[:MAX_RESULT_LINE] + ("…" if is_cut else "")
