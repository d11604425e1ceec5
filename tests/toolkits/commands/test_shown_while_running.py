"""What a running command has printed: shown meanwhile, and kept when it is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Host, Permissions, Scripted, Storage
from ferrule.cli.chat.chat_terminal import ChatTerminal
from ferrule.cli.live_output import LiveOutput
from ferrule.core.errors import RunCancelled
from ferrule.core.events import ToolAnswered
from ferrule.engine.live_events import Live, Progress
from ferrule.plugins import Parts
from ferrule.storage import SqliteJournal
from ferrule.testing import calls, says
from ferrule.toolkits.commands import CommandPolicy, run_command
from ferrule.toolkits.model_family_tools.anthropic import bash

COMMAND = "for n in 1 2 3 4 5 6 7 8; do echo line $n; done; until test -e go; do sleep 0.05; done"


def make_agent(folder: Path, *steps: Any) -> Agent[None, str]:
    return Agent(
        Scripted(list(steps)),
        [run_command, bash],
        workspace=folder,
        permissions=Permissions(mode="bypassPermissions"),
        plugins=[Parts(resources=[CommandPolicy(shell_allowed=True)])],
        storage=Storage(journal=SqliteJournal(":memory:")),
        host=Host(interruptible=True),
    )


async def test_the_last_lines_are_shown_and_leave_with_the_command(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, calls(("run_command", {"command": COMMAND})), says("done"))
    session = agent.session()
    terminal = ChatTerminal()
    show = LiveOutput(terminal, session.history.find_call, live=True)
    shown: list[list[str]] = []

    def watch(item: Live) -> None:
        show(item)
        if isinstance(item, Progress) and item.is_tail:
            shown.append(list(terminal.tail))
            (tmp_path / "go").touch()

    session.observe(watch)
    async with asyncio.timeout(60):
        await session.run("go")
    assert shown[0] == [f"line {n}" for n in range(9 - 5, 9)]
    assert terminal.tail == []
    await session.close()
    await agent.close()


@pytest.mark.parametrize("tool", ["run_command", "bash"])
@pytest.mark.parametrize("whole_turn", [False, True])
async def test_a_command_that_is_stopped_leaves_its_output_to_the_model_and_the_person(
    tmp_path: Path, tool: str, whole_turn: bool
) -> None:
    steps = [calls((tool, {"command": COMMAND})), says("done")]
    agent = make_agent(tmp_path, *steps[: 1 if whole_turn else 2])
    session = agent.session()
    begun = asyncio.Event()
    results: list[str] = []

    def watch(item: Live) -> None:
        if isinstance(item, Progress) and item.is_tail:
            begun.set()
        if isinstance(item, ToolAnswered):
            results.append(item.result.error_message or "")

    session.observe(watch)
    running = asyncio.create_task(session.run("go"))
    async with asyncio.timeout(60):
        await begun.wait()
        if whole_turn:
            session.cancel()
            with pytest.raises(RunCancelled):
                await running
        else:
            assert session.stop_call()
            assert (await running).text == "done"
    kept = "Its output until then:\n" + "\n".join(f"line {n}" for n in range(1, 9))
    assert results[-1].endswith(kept)
    assert any(message.text.endswith(kept) for message in session.history)
    await session.close()
    await agent.close()
