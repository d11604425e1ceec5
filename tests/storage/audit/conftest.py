"""Sessions as a scripted model makes them: calls that are allowed, asked about, refused, unknown,
failing, changed by a hook.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Context, Scripted, ToolFailed, tool
from ferrule.core.calls import ErrorType
from ferrule.engine.hooks.call_hooks import Block
from ferrule.hooks import Change
from ferrule.models.scripted import calls, says
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.storage.journal.sqlite import SqliteJournal
from grouped_options import grouped

NOW = 1_800_000_000.0


@tool(side_effect="none", risk="safe")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effect="write", risk="high")
def note(text: str) -> str:
    """Write something down."""
    return f"noted {text}"


@tool(side_effect="write", risk="medium")
def fail(text: str) -> str:
    """Try and fail."""
    raise ToolFailed(ErrorType.IO_ERROR, f"no room for {text}")


TOOLS = (add, note, fail)
MENU = {
    "add": ("add", {"a": 2, "b": 3}),
    "note": ("note", {"text": "milk \x1b[2J ä 😀"}),
    "fail": ("fail", {"text": "bread"}),
    "unknown": ("nope", {}),
    "wrong": ("add", {"a": "two"}),
}
"""What a session's model may ask for, by a word."""


class Person:
    """Answers with these choices in turn, again and again."""

    def __init__(self, *choices: str) -> None:
        self._choices = itertools.cycle(choices)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        choice: Any = next(self._choices)
        grant = next((offer.rule for offer in request.offers if offer.choice == choice), "")
        return ApprovalAnswer(choice, grant, by="ann", note="as agreed")


class Meddler:
    """Changes what is noted, blocks notes of bread, redacts sums."""

    name = "meddler"

    async def before(self, tool: Any, values: Any, context: Context) -> Any:
        if tool.name == "fail":
            return Block("no bread today")
        return Change({"text": "tea"}) if tool.name == "note" and values["text"] != "tea" else None

    async def after(self, tool: Any, result: Any, context: Context) -> Any:
        return None


Recorded = Callable[..., str]


@pytest.fixture(scope="session")
def recorded() -> Recorded:
    """`recorded(journal, rounds, choices=("once",), hooks=(), **options)`: a session whose model
    asks for these rounds of words of `MENU`; its id. The session is closed and its lease given
    back.
    """

    def made(
        journal: SqliteJournal,
        rounds: Sequence[Sequence[str]],
        choices: Sequence[str] = ("once",),
        hooks: Sequence[Any] = (),
        **options: Any,
    ) -> str:
        steps = [calls(*(MENU[word] for word in words)) for words in rounds if words]

        async def work() -> str:
            agent = Agent(
                Scripted([*steps, says("done")]),
                TOOLS,
                **grouped(
                    journal=journal, approver=Person(*choices), user="ann", hooks=hooks, **options
                ),
            )
            session = agent.session()
            await session.run("go")
            await session.close()
            return session.id

        return asyncio.run(work())

    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def meddler() -> Meddler:
    return Meddler()
