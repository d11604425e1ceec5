"""Reports about agents of the terminal, listed before any of them was tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pexpect
import pytest

from ferrule import Agent, Permissions, Scripted, Storage
from ferrule.cli.chat import loop
from ferrule.cli.chat.chat_state import Chat
from ferrule.cli.chat.hot_reload import ChatReloader
from ferrule.cli.chat.slash_commands import COMMANDS, complete_argument
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.connectors.mcp.configuration import read_server
from ferrule.core.errors import ConfigError
from ferrule.core.events import ContextAdded
from ferrule.permissions.grants import Grants
from ferrule.runtime.assemble import open_journal
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage import paths
from ferrule.testing import calls, says
from ferrule.toolkits import FILE_TOOLS


def write_with(folder: Path, *steps: tuple[str, dict[str, Any]]) -> list[bool]:
    """Let a model edit files; return which calls succeeded."""
    model = Scripted([*(calls(step) for step in steps), says("done")])
    agent = Agent(
        model,
        FILE_TOOLS,
        workspace=str(folder),
        storage=Storage(journal=":memory:"),
        permissions=Permissions(mode="acceptEdits"),
    )
    return [result.success for result in agent.run_sync("go").results]


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "edit_file", {"path": path, "old_string": old, "new_string": new}


def test_letters_of_many_scripts_are_kept_by_an_edit_beside_them(tmp_path: Path) -> None:
    text = "a = 'Đồng'; b = 'Samoan tālā'; c = 'bolívar'\n"
    (tmp_path / "money.js").write_text(text)
    assert all(write_with(tmp_path, edit("money.js", "'bolívar'", "'bolívar digital'")))
    assert (tmp_path / "money.js").read_text() == text.replace("bolívar", "bolívar digital")


def test_a_second_edit_fits_after_the_first_in_a_file_with_crlf(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    first = edit("w.txt", "one\ntwo", "one\nTWO")
    second = edit("w.txt", "TWO\nthree", "TWO\nTHREE\nfour")
    assert write_with(tmp_path, first, second) == [True, True]
    assert (tmp_path / "w.txt").read_bytes() == b"one\r\nTWO\r\nTHREE\r\nfour\r\n"


def test_a_byte_order_mark_is_kept_by_an_edit(tmp_path: Path) -> None:
    (tmp_path / "bom.txt").write_bytes("\ufeffcafé\n".encode())
    assert write_with(tmp_path, edit("bom.txt", "café", "cafés")) == [True]
    assert (tmp_path / "bom.txt").read_bytes() == "\ufeffcafés\n".encode()


def test_an_argument_that_only_a_shell_would_fill_in_is_remarked() -> None:
    remarks: list[str] = []
    entry = {"command": "vestige", "args": ["--data-dir", "$VESTIGE_DB", "--x", "${OTHER}", "a$b"]}
    server = read_server("vestige", entry, "mcp.json", remarks=remarks)
    assert server is not None and server.variables() == ("OTHER",)
    assert remarks == ["`$VESTIGE_DB` is taken as it stands; a variable is `${NAME}`"]


# ---- chats


@pytest.fixture
async def open_chat(tmp_path: Path) -> AsyncIterator[Callable[..., Chat]]:
    """`open_chat(folder, session=None)`: a chat with a model that says `fine`, after some calls."""
    script = tmp_path / "script.yaml"
    opened: list[Chat] = []

    def make(
        folder: str, session: str | None = None, *first: tuple[str, dict[str, Any]], mode: str = ""
    ) -> Chat:
        (tmp_path / folder).mkdir(exist_ok=True)
        steps = [{"call": [{"tool": tool, "arguments": values}]} for tool, values in first]
        script.write_text(json.dumps([*steps, *[{"say": "fine"}] * 3]))
        options = {"workspace": str(tmp_path / folder), "model": f"scripted:{script}"}
        options |= {"mode": mode} if mode else {}
        assembly = assemble_at_terminal(options, interruptible=True)
        opened.append(Chat(assembly, assembly.open_session(session)))
        return opened[-1]

    yield make
    for chat in opened:
        await chat.assembly.close(chat.session, strict=False)


async def leave(chat: Chat) -> str:
    """End a chat's session; return its id."""
    await chat.session.close()
    return chat.session.id


async def test_a_conversation_that_goes_on_in_another_folder_says_where_it_was(
    open_chat: Callable[..., Chat], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = open_chat("one")
    await chat.session.run("hello")
    session = await leave(chat)
    capsys.readouterr()
    same = open_chat("one", session[:12])
    assert "worked in" not in capsys.readouterr().err
    await leave(same)
    other = open_chat("two", session[:12])
    assert other.session.id == session
    said = capsys.readouterr().err
    assert f"worked in `{tmp_path}/one` and goes on in `{tmp_path}/two`" in said
    assert f"`-C {tmp_path}/one`" in said


async def test_resume_lists_the_conversations_of_the_folder_first(
    open_chat: Callable[..., Chat],
) -> None:
    there = open_chat("there")
    await there.session.run("elsewhere")
    elsewhere = await leave(there)
    before = open_chat("here")
    await before.session.run("before")
    earlier = await leave(before)
    chat = open_chat("here")
    offered: list[Sequence[tuple[str, str]]] = []

    async def choose(title: str, options: Sequence[tuple[str, str]]) -> str:
        offered.append(options)
        return ""

    chat.choose = choose
    await COMMANDS["resume"].run(chat, "")
    assert [session for session, _ in offered[0]] == [earlier]
    far = open_chat("far")
    far.choose = choose
    await COMMANDS["resume"].run(far, "")
    assert {session for session, _ in offered[1]} == {earlier, elsewhere}


async def test_a_conversation_without_a_message_leaves_nothing_to_resume(
    open_chat: Callable[..., Chat],
) -> None:
    chat = open_chat("empty")
    assert not chat.session.is_recorded
    await leave(chat)
    with open_journal() as store:
        assert list(store.sessions()) == []


async def test_what_was_remembered_is_listed_and_withdrawn_for_later_sessions_too(
    open_chat: Callable[..., Chat], capsys: pytest.CaptureFixture[str]
) -> None:
    Grants.load(paths.state() / "grants.json").remember("Bash(make:*)")
    chat = open_chat("granted")
    await COMMANDS["permissions"].run(chat, "")
    assert "Bash(make:*)" in capsys.readouterr().out
    assert "forget Bash(make:*)" in complete_argument(chat, "permissions", "f")
    await COMMANDS["permissions"].run(chat, "forget Bash(make:*)")
    await COMMANDS["permissions"].run(chat, "")
    assert "Bash(make:*)" not in capsys.readouterr().out
    assert Grants.load(paths.state() / "grants.json").rules == ()
    with pytest.raises(ConfigError, match=r"`Bash\(x\)` was not granted"):
        await COMMANDS["permissions"].run(chat, "forget Bash(x)")


async def test_dollar_signs_in_a_skill_are_not_filled_in_from_its_arguments(
    open_chat: Callable[..., Chat], tmp_path: Path
) -> None:
    place = tmp_path / "skilled/.claude/skills/count"
    place.mkdir(parents=True)
    head = "---\nname: count\ndescription: Count words.\n---\n"
    (place / "SKILL.md").write_text(f"{head}Run `awk '{{print $1, $0}}' FILE`.\n")
    chat = open_chat("skilled")

    async def ask(text: str) -> str:
        raise EOFError

    await loop._handle_line(chat, "/count one two", ChatReloader(chat, {}, ask))  # pyright: ignore[reportPrivateUsage]
    records = chat.assembly.agent.journal.records(chat.session.id)
    (added,) = [one.event.text for one in records if isinstance(one.event, ContextAdded)]
    assert "`awk '{print $1, $0}' FILE`" in added


async def test_a_model_that_was_chosen_stays_when_the_conversation_is_compacted(
    open_chat: Callable[..., Chat], tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    reads: list[tuple[str, dict[str, Any]]] = []
    for number in range(5):
        (tmp_path / f"work/{number}.txt").write_text(f"some long line of words {number}\n" * 300)
        reads.append(("read_file", {"path": f"{number}.txt"}))
    chat = open_chat("work", None, *reads)
    chosen = tmp_path / "chosen.yaml"
    chosen.write_text(json.dumps([{"say": "a summary"}, {"say": "by the chosen one"}]))
    for _ in range(3):
        await chat.session.run("look")
    await COMMANDS["model"].run(chat, f"scripted:{chosen}")
    await COMMANDS["compact"].run(chat, "")
    assert chat.session.driver.machine.compaction.is_active
    assert (await chat.session.run("go on")).text == "by the chosen one"


async def test_what_a_person_had_changed_stays_when_an_edit_beside_it_is_undone(
    open_chat: Callable[..., Chat], tmp_path: Path
) -> None:
    file = tmp_path / "work/a.py"
    file.parent.mkdir()
    file.write_text("mine\ntwo\n")
    chat = open_chat("work", None, edit("a.py", "two", "TWO"), mode="acceptEdits")
    await chat.session.run("go")
    assert file.read_text() == "mine\nTWO\n"
    await COMMANDS["undo"].run(chat, "force")
    assert file.read_text() == "mine\ntwo\n"


def test_a_terminal_that_is_closed_leaves_no_process(tmp_path: Path) -> None:
    if not available_backends(SandboxPolicy(tmp_path), probe()):
        pytest.skip(f"this machine confines no commands: {dict(probe().why)}")
    script = tmp_path / "script.yaml"
    steps = [
        {"call": [{"tool": "run_command", "arguments": {"command": text, "background": back}}]}
        for text, back in (("sleep 6079", True), ("echo beg''un; sleep 6079", False))
    ]
    script.write_text(json.dumps([*steps, {"say": "done"}]))
    words = ["chat", "-m", f"scripted:{script}", "--mode", "sandboxed"]
    chat = pexpect.spawn(
        str(Path(sys.executable).with_name("ferrule")),
        words,
        env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},  # pyright: ignore[reportArgumentType]
        cwd=str(tmp_path),
        timeout=60,
    )
    chat.expect("›".encode())
    chat.send("go\r")
    chat.expect("begun")
    assert "sleep 6079" in list_processes()
    os.close(chat.child_fd)
    end = time.monotonic() + 30
    while os.waitpid(chat.pid, os.WNOHANG) == (0, 0):
        assert time.monotonic() < end, "the chat goes on"
        time.sleep(0.1)
    while "6079" in list_processes():
        assert time.monotonic() < end, list_processes()
        time.sleep(0.1)


def list_processes() -> str:
    return subprocess.check_output(["ps", "-eo", "args"], text=True)
