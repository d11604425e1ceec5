"""A workspace and an agent whose tools other frameworks call, and what its journal says then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ferrule import Agent, Image, Permissions, Storage, tool
from ferrule.core.events import DirectCall, PersonAnswered
from ferrule.plugins import Parts
from ferrule.replay import replay
from ferrule.storage.audit.verification import verify_sessions
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.statistics.finished_calls import CallReader, FinishedCall
from ferrule.toolkits import FILE_TOOLS
from media_samples import make_png

READ = ("read_file", {"path": "notes.txt"})
WRITE = ("write_file", {"path": "done.txt", "content": "all of it"})
FORBIDDEN = ("read_file", {"path": "secret/plan.txt"})
SLOW = ("wait_for_ever", {})


@tool(side_effect="read", timeout=0.05, max_attempts=1)
async def wait_for_ever() -> str:
    """Wait for what never comes."""
    await asyncio.Event().wait()
    return "never"


@tool(side_effect="read")
def draw() -> list[Any]:
    """Draw a small picture."""
    return ["a square", Image(make_png())]


@dataclass
class Place:
    """A workspace, a journal, and the sessions that were opened there."""

    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "work"

    @property
    def journal(self) -> SqliteJournal:
        return SqliteJournal(self.folder / "journal.db")

    def agent(self, *more: Any, **permissions: Any) -> Agent[None, str]:
        allowed = permissions.pop("allow", ("Read(**)",))
        hooks = permissions.pop("hooks", ())
        return Agent(
            "scripted:none",
            [*FILE_TOOLS, wait_for_ever, draw, *more],
            workspace=self.workspace,
            permissions=Permissions(allow=allowed, deny=("Read(secret/**)",), **permissions),
            storage=Storage(journal=self.folder / "journal.db", user="ada"),
            plugins=[Parts(hooks=hooks)],
        )

    def written(self, name: str = "done.txt") -> str | None:
        path = self.workspace / name
        return path.read_text() if path.exists() else None

    def calls(self, session: str) -> list[FinishedCall]:
        """The calls of a session, each with its one result; its journal must verify and replay."""
        verified = verify_sessions(self.journal)
        assert verified.is_intact, verified.findings
        records = list(self.journal.records(session))
        report = replay(records)
        assert report.same, report.differences
        reader = CallReader()
        found = [call for record in records for call in reader.feed(record)]
        begun = [one.event.call.id for one in records if isinstance(one.event, DirectCall)]
        assert sorted(begun) == sorted(call.call_id for call in found)
        return found

    def approved_by(self, session: str) -> list[str]:
        """Who said yes to calls of a session."""
        return [
            record.event.by
            for record in self.journal.records(session)
            if isinstance(record.event, PersonAnswered) and record.event.choice == "once"
        ]


def make_place(folder: Path) -> Place:
    place = Place(folder)
    (place.workspace / "secret").mkdir(parents=True)
    (place.workspace / "notes.txt").write_text("buy bolts\n")
    (place.workspace / "secret" / "plan.txt").write_text("the plan\n")
    return place


def outcomes(calls: list[FinishedCall]) -> list[tuple[str, str]]:
    return [(call.tool, call.outcome) for call in calls]


THE_RUN: list[tuple[str, Mapping[str, Any]]] = [READ, WRITE, FORBIDDEN, SLOW]
"""Reads, writes with an approval, is refused, and times out."""
WHAT_THE_JOURNAL_SAYS = [
    ("read_file", "success"),
    ("write_file", "permission_denied"),
    ("write_file", "success"),
    ("read_file", "permission_denied"),
    ("wait_for_ever", "timeout"),
]
"""Of `THE_RUN`: what waits for an approval stands there as not run, and the approval makes another
call.
"""
