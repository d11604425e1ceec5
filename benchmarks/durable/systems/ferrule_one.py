"""Ferrule in one process; the journal in PostgreSQL, in a SQLite file, or in memory."""

import importlib
import os

from effects import pay
from model import prompt

from ferrule import Agent, OpenAIChat, Storage, tool
from ferrule.storage.journal.sqlite import SqliteJournal

TOOLS = [tool(pay, side_effect="external", risk="safe")]


def model():
    return OpenAIChat("gpt-4o", base_url=os.environ["BENCH_BASE_URL"], api_key="none")


def journal(kind):
    """What `Agent(journal=...)` takes; `MODULE:FUNCTION` makes one that is tried out."""
    if ":" in kind:
        module, _, function = kind.partition(":")
        return getattr(importlib.import_module(module), function)()
    file = os.environ["BENCH_FOLDER"] + "/journal.db"
    return {
        "pg": lambda: os.environ["BENCH_DATABASE"],
        "sqlite": lambda: file,
        "power": lambda: SqliteJournal(file, durability="power"),
        "memory": lambda: SqliteJournal(":memory:"),
    }[kind]()


class System:
    async def start(self):
        kept = journal(os.environ["BENCH_JOURNAL"])
        self.agent = Agent(model(), TOOLS, storage=Storage(journal=kept), tool_calling="native")

    async def run(self, run):
        return (await self.agent.run(prompt(run))).text

    async def stop(self):
        await self.agent.disconnect()
