"""Errors in a program's own code reach its author: whole, and without what has no part in them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ferrule import Agent, ApprovalAnswer, ApprovalRequest, FerruleError, Limits, Permissions, tool
from ferrule.hooks import ToolPost, ToolPre, hook
from ferrule.models.scripted import Scripted, calls, says
from ferrule.plugins import Parts


@tool(side_effect="write")
def pay(euros: int) -> str:
    """Pay somebody."""
    return f"paid {euros}"


def script() -> Scripted:
    return Scripted([calls(("pay", {"euros": 5})), says("Done.")])


class BrokenApprover:
    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        raise KeyError("desk")


class BrokenBefore:
    async def before(self, tool: Any, values: Any, context: Any) -> None:
        raise KeyError("desk")

    async def after(self, tool: Any, result: Any, context: Any) -> None:
        return None


class BrokenAfter(BrokenBefore):
    async def before(self, tool: Any, values: Any, context: Any) -> None:
        return None

    async def after(self, tool: Any, result: Any, context: Any) -> None:
        raise KeyError("desk")


@hook("tool.pre")
def broken_pre(call: ToolPre) -> None:
    raise KeyError("desk")


@hook("tool.post")
def broken_post(call: ToolPost) -> None:
    raise KeyError("desk")


ALLOWED = Permissions(allow=["pay"])


@pytest.mark.parametrize(
    ("agent", "guard"),
    [
        (Agent(script(), [pay], permissions=Permissions(approver=BrokenApprover())), "approver"),
        *(
            (Agent(script(), [pay], permissions=ALLOWED, plugins=[Parts(hooks=[one])]), name)
            for one, name in (
                (BrokenBefore(), "BrokenBefore"),
                (BrokenAfter(), "BrokenAfter"),
                (broken_pre, "broken_pre"),
                (broken_post, "broken_post"),
            )
        ),
    ],
    ids=["approver", "before", "after", "tool.pre", "tool.post"],
)
def test_a_guard_that_breaks_is_logged_with_its_traceback(
    agent: Agent, guard: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "ferrule.permissions"):
        (result,) = agent.run_sync("Pay.").results
    assert not result.success
    (record,) = [one for one in caplog.records if one.name == "ferrule.permissions"]
    assert guard in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in found:
        found.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return found


@pytest.mark.parametrize(
    "agent",
    [Agent("nothing"), Agent(script(), [pay], permissions=ALLOWED, limits=Limits(max_turns=1))],
    ids=["config", "limit"],
)
def test_an_error_of_run_sync_was_raised_during_no_other_one(agent: Agent) -> None:
    with pytest.raises(FerruleError) as raised:
        agent.run_sync("Pay.")
    assert not [one for one in _chain(raised.value) if isinstance(one, RuntimeError)]


@pytest.mark.parametrize("name", ["session", "session_id", "thread_id", "resume"])
def test_a_run_that_should_continue_a_thread_is_led_to_the_session(name: str) -> None:
    async def run() -> None:
        options: Any = {name: "thread-1"}
        await Agent(script(), [pay]).run("Pay.", **options)

    with pytest.raises(TypeError, match=r"agent\.session\(id=\.\.\., resume=True\)"):
        asyncio.run(run())
