"""Every question can be answered yes, in every interface, whoever asks it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, Storage, tool
from ferrule.cli.permission_prompt import TerminalApprover, answer_keys
from ferrule.cli.terminal import Terminal
from ferrule.console.questions import Question
from ferrule.console.viewer import Viewer
from ferrule.core.calls import ToolCall
from ferrule.core.identity import Identity
from ferrule.engine.hooks.call_hooks import Ask
from ferrule.extensions.hooks.decorator import hook
from ferrule.permissions.approvals import ApprovalRequest
from ferrule.plugins import Parts
from ferrule.servers.acp.permission import build_options
from ferrule.storage import SqliteJournal
from ferrule.testing import calls, says

WHO = Identity("local", "ada", "s", "r")


@tool(side_effect="read", risk="safe")
def look(place: str) -> str:
    """Look somewhere."""
    return f"seen {place}"


def question(*, risk: str = "high", unknown: bool = False) -> ApprovalRequest:
    """A question of which whoever made it named no answer."""
    call = ToolCall("c", "look", '{"place":"here"}')
    return ApprovalRequest(
        call, look, risk, "why", (), "", (), "d", WHO, has_unknown_outcome=unknown
    )


@pytest.mark.parametrize("risk", ["safe", "low", "high", "critical"])
@pytest.mark.parametrize("unknown", [False, True])
async def test_every_interface_offers_a_yes(risk: str, unknown: bool) -> None:
    asked = question(risk=risk, unknown=unknown)
    assert [key.typed for key in answer_keys(asked)] == ["1"]
    assert build_options(asked)[0].choice == "once"
    operator = Viewer("ada", operator=True)
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    shown = Question("q", "local", "ada", "s", asked, 0, waiting)
    assert [offer.choice for offer in shown.offers(operator)] == ["once"]


@pytest.mark.parametrize(("typed", "runs"), [("1", True), ("4", False)])
async def test_a_question_of_a_hook_is_answered_at_the_terminal(typed: str, runs: bool) -> None:
    @hook("tool.pre")
    async def look_twice(call: Any) -> Ask:
        return Ask("look twice")

    async def read(prompt: str) -> str:
        return f"{typed}\n"

    agent = Agent(
        Scripted([calls(("look", {"place": "here"})), says("done")]),
        [look],
        plugins=[Parts(hooks=[look_twice])],
        permissions=Permissions(approver=TerminalApprover(Terminal(), read, user="ada")),
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    [result] = (await agent.run("go")).results
    assert result.success is runs
