"""Slash commands about conversations: begin, continue, go back, repeat, look at and export them."""

from __future__ import annotations

from itertools import islice

from ferrule.cli.terminal import escape_invisible
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.permissions.filesystem.workspace import ABSENT, Workspace
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage import paths
from ferrule.storage.export.transcripts import write_markdown
from ferrule.storage.journal.session_search import search_sessions

from .chat_state import Chat
from .status import format_cost, format_count

with lazy_imports():
    from ferrule.connectors.mcp import plugin
    from ferrule.runtime import model_choice

MAX_DIGITS = 10
"""Digits of a number of messages that is read at all."""
LISTED_SESSIONS = 20
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


async def clear(chat: Chat, rest: str) -> None:
    """Begin a new conversation. The one before stays in the journal."""
    previous = chat.session
    await chat.switch(chat.assembly.open_session(None))
    hint = f"; `/resume {previous.id[:12]}` goes back" if previous.is_recorded else ""
    chat.assembly.terminal.write_message(f"new conversation{hint}")


async def resume(chat: Chat, rest: str) -> None:
    """Continue another conversation, chosen from a list if none is named."""
    wanted = rest or await _choose_session(chat)
    if wanted:
        await switch_session(chat, wanted)


async def _choose_session(chat: Chat) -> str:
    root = str(chat.assembly.settings.workspace)
    listed = chat.assembly.agent.journal.sessions(limit=200)
    others = [row for row in listed if row.session != chat.session.id and row.runs]
    here = [row for row in others if row.workspace == root] or others
    options = [
        (row.session, f"{row.session[:12]}  {row.state:9} {_shorten(row.question)}")
        for row in here[:LISTED_SESSIONS]
    ]
    if not options:
        raise ConfigError("there is no other conversation to continue")
    return await chat.choose("Continue which conversation? (Esc: none)", options)


async def switch_session(chat: Chat, wanted: str) -> None:
    """Close this session and continue another one with the same model."""
    found = chat.assembly.agent.journal.find(wanted)
    if found.session == chat.session.id:
        raise ConfigError(f"`{wanted}` is the current session")
    await chat.switch(chat.assembly.open_session(found.session))
    chat.assembly.terminal.write_message(f"now in {chat.session.id[:12]}: {found.question}")
    await chat.session.resume()


async def list_sessions(chat: Chat, rest: str) -> None:
    """List recent sessions, or those with some words."""
    rows = list(islice(search_sessions(chat.assembly.agent.journal, rest), 10))
    if rest and not rows:
        raise ConfigError(f"no session has all of these words: {rest}")
    for row in rows:
        mark = "*" if row.session == chat.session.id else " "
        chat.assembly.terminal.write_answer(
            f"{mark} {row.session[:12]}  {row.state:9}  {_shorten(row.question)}"
        )


async def undo(chat: Chat, rest: str) -> None:
    """Go back to before the last message, with the files that tools changed since."""
    if rest not in ("", "force"):
        raise ConfigError(
            f"unknown command `/undo {rest}`; write `/undo`, or `/undo force` to restore also "
            "files that something else has changed since"
        )
    terminal = chat.assembly.terminal
    messages = chat.session.history.list_run_messages()
    if not messages:
        raise ConfigError("there is nothing to undo: no message has been answered yet")
    runs = len(messages) - 1
    point, plan = chat.session.plan_rewind(runs)
    if plan.restored and not await _confirm_restoring(chat, plan.restored):
        return
    report = chat.session.rewind(runs, force=rest == "force")
    for path, why in report.left_alone.items():
        terminal.write_message(f"! left alone: {path}: {why}", style="yellow")
    if point.uncovered:
        terminal.write_message(
            f"! {_count(point.uncovered, 'call')} without a copy may have changed more, "
            "which is not restored",
            style="yellow",
        )
    await _go_back(chat, runs)
    restored = f" ({_count(len(report.restored), 'file')} restored)" if report.restored else ""
    terminal.write_message(f"undone: {_shorten(messages[-1])}{restored}")


async def _confirm_restoring(chat: Chat, restored: list[str]) -> bool:
    for path in restored:
        chat.assembly.terminal.write_message(f"  {path}")
    try:
        answer = await chat.ask(f"restore {_count(len(restored), 'file')}? [Y/n] ")
    except EOFError:
        answer = "n"
    if answer.strip().lower() in ("", "y", "yes"):
        return True
    chat.assembly.terminal.write_message("nothing was undone")
    return False


async def retry(chat: Chat, rest: str) -> None:
    """Ask the last message again, or another one in its place. Files stay as they are."""
    messages = chat.session.history.list_run_messages()
    if not messages:
        raise ConfigError("there is nothing to repeat: no message has been answered yet")
    await _go_back(chat, len(messages) - 1)
    chat.next_message = rest or messages[-1]


async def fork(chat: Chat, rest: str) -> None:
    """Go on in a copy of this conversation, or of its first messages. Files stay as they are."""
    messages = chat.session.history.list_run_messages()
    count = len(messages)
    if rest:
        count = int(rest) if rest.isdecimal() and len(rest) < MAX_DIGITS else 0
    if not 0 < count <= len(messages):
        raise ConfigError(
            f"there is no message number {rest}" if rest else "there is nothing to copy yet",
            hint=f"this conversation has {_count(len(messages), 'message')}",
        )
    original = chat.session.id
    await _go_back(chat, count)
    chat.assembly.terminal.write_message(
        f"now in {chat.session.id[:12]}, a copy of {_count(count, 'message')}; "
        f"`/resume {original[:12]}` goes back"
    )


async def _go_back(chat: Chat, runs: int) -> None:
    """Go on in a copy of this conversation that ends with run number `runs`."""
    if runs:
        await chat.switch(chat.assembly.agent.resume(chat.session.fork(runs)))
    else:
        await chat.switch(chat.assembly.open_session(None))


async def diff(chat: Chat, rest: str) -> None:
    """Show what tools have changed in files since this conversation began."""
    lines, uncovered = chat.session.diff_files()
    terminal = chat.assembly.terminal
    for line in lines:
        terminal.write_message(line, style=_DIFF_STYLES.get(line[:1], ""))
    if not lines:
        terminal.write_message("no tool has changed a file in this conversation")
    if uncovered:
        terminal.write_message(
            f"! {_count(uncovered, 'call')} without a copy may have changed more",
            style="yellow",
        )


async def export(chat: Chat, rest: str) -> None:
    """Write this conversation as Markdown: into a new file of the folder, if one is named."""
    chat.session.flush()
    if not chat.session.is_recorded:
        raise ConfigError("there is nothing to export yet")
    text = "".join(write_markdown(chat.assembly.agent.journal.records(chat.session.id)))
    name = rest
    if not name:
        # A repository is not littered by a command that names no place in it.
        file = paths.state() / "exports" / f"conversation-{chat.session.id[:12]}.md"
        paths.write_private(file, text)
        chat.assembly.terminal.write_message(f"wrote {file}")
        return
    workspace = chat.assembly.agent.workspace
    if workspace is None:
        raise ConfigError("there is no folder to write to")
    refusal = chat.assembly.agent.gate.find_path_refusal(name, write=True)
    if refusal:
        raise ConfigError(f"`{name}` was not written: {refusal}")
    if _exists(workspace, name):
        raise ConfigError(
            f"`{name}` was not written: it is there already", hint="name another file"
        )
    try:
        workspace.write(name, text.encode(), expect=ABSENT)
    except ToolFailed as error:
        raise ConfigError(f"`{name}` was not written: {error}") from error
    chat.assembly.terminal.write_message(f"wrote {name}")


def _exists(workspace: Workspace, name: str) -> bool:
    try:
        workspace.stat(name)
    except ToolFailed:
        return False
    return True


async def show_cost(chat: Chat, rest: str) -> None:
    """Show the tokens of this conversation since the chat began, and what they cost."""
    usage = chat.status.usage
    if not usage.input and not usage.output:
        chat.assembly.terminal.write_answer("no tokens have been counted yet")
        return
    parts = [f"input {format_count(usage.input)} tokens"]
    if usage.cached:
        parts.append(f"{format_count(usage.cached)} of them from the cache")
    parts.append(f"output {format_count(usage.output)} tokens")
    cost = "price of this model unknown"
    if chat.status.price is not None:
        cost = format_cost(chat.status.cost) if chat.status.cost else "free"
    chat.assembly.terminal.write_answer(f"{', '.join(parts)}: {cost}")


async def show_permissions(chat: Chat, rest: str) -> None:
    """Show the permission mode, and the rules that hold; `forget RULE` withdraws a grant."""
    terminal = chat.assembly.terminal
    word, _, rule = rest.partition(" ")
    if word == "forget":
        if not chat.session.approvals.forget_grant(rule.strip()):
            raise ConfigError(
                f"`{rule.strip()}` was not granted",
                hint="`/permissions` lists the rules; those of settings are changed in their file",
            )
        terminal.write_message(f"withdrawn: `{rule.strip()}`")
        return
    if rest:
        raise ConfigError(
            f"unknown command `/permissions {rest}`; write `/permissions`, or "
            "`/permissions forget RULE`"
        )
    terminal.write_answer(f"mode {chat.session.mode}")
    for rule in chat.session.approvals.rules:
        terminal.write_answer(f"  {rule.list:5} {rule.text}  ({rule.layer})")


async def show_servers(chat: Chat, rest: str) -> None:
    """Show the MCP servers of this chat."""
    terminal = chat.assembly.terminal

    servers = chat.assembly.agent.plugins.find_resource(plugin.RunServers)
    rows = () if servers is None else servers.status()
    for row in rows:
        detail = f"  {row.detail}" if row.detail else ""
        terminal.write_answer(f"  {row.name:20} {row.state:9} {row.tools:3} tools{detail}")
    if not rows:
        terminal.write_message("no MCP servers configured; `ferrule mcp add` adds one")


async def choose_model(chat: Chat, rest: str) -> None:
    """Change the model, chosen from a list if none is named; the history stays."""
    name = rest or await _choose_model(chat)
    if not name:
        return
    await chat.assembly.change_model(name, chat.session)
    chat.session.add_notice("model", f"changed to {name}", flush=True)


async def _choose_model(chat: Chat) -> str:
    current = chat.session.model
    terminal = chat.assembly.terminal
    terminal.write_answer(f"model {current}")
    candidates = await model_choice.find_candidates(chat.assembly.settings)
    for one in candidates.unusable:
        terminal.write_message(f"! {one.problem}; {one.hint}", style="yellow")
    options = [
        (one.model, escape_invisible(f"{one.model}  {one.reason}")) for one in candidates.found
    ]
    chosen = await chat.choose("Which model? (Esc: stay; `/model NAME` takes any other)", options)
    return "" if chosen == current else chosen


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shorten(text: str) -> str:
    words = " ".join(escape_invisible(text).split())
    return words if len(words) <= 60 else f"{words[:59]}…"
