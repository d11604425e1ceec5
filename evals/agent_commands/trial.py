"""Run commands in the default settings of the command line at a terminal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.core.calls import ToolResult
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.runtime.assemble import assemble
from ferrule.toolkits.commands.refused_access import OPENING_TOOL

from .gate import AgentCommand
from .project import make_project, restore

IN_PLACE = re.compile(
    r"not found|exit status 12[67]|there is no such program|Requirement already satisfied"
)
HOST = re.compile(r"sandbox refused a connection|is not one of the hosts in the `network` setting")
TIMEOUT = 60


@dataclass(frozen=True)
class Outcome:
    """What became of a command: `runs`, `asks`, `host` or `refused`, and what was said."""

    row: AgentCommand
    kind: str
    said: str

    @property
    def is_expected(self) -> bool:
        """Whether it is what a person expects.

        A program that is missing reaches for no host, nor does pip for what is installed.
        """
        if self.kind == "runs" and self.row.expect == "host":
            return IN_PLACE.search(self.said) is not None
        return self.kind == self.row.expect


@dataclass
class Person:
    """Approves all commands of the folder when first asked, and nothing after that."""

    asks_about_unknown = True
    requests: list[ApprovalRequest] = field(default_factory=list)
    has_approved: bool = False

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        wide = [
            offer
            for offer in request.offers
            if offer.choice == "session" and offer.rule == request.tool.full_name
        ]
        if not self.has_approved and wide:
            self.has_approved = True
            return ApprovalAnswer("session", wide[0].rule, by="person")
        self.requests.append(request)
        return ApprovalAnswer("deny", by="person")


async def run_commands(rows: Iterable[AgentCommand], folder: Path) -> AsyncIterator[Outcome]:
    """Run commands one after the other, each in the project as it was; yield what became of it."""
    template = folder / "template"
    work = folder / "work"
    template.mkdir()
    work.mkdir()
    make_project(template)
    restore(template, work)
    for name in ("CONFIG", "STATE"):
        os.environ[f"FERRULE_{name}"] = str(folder / name.lower())
    script = folder / "model.yaml"
    script.write_text(json.dumps([{"say": "Done."}]))
    person = Person()
    assembly = assemble(
        {"workspace": str(work), "model": f"scripted:{script}"},
        notice=lambda _: None,
        approver=person,
    )
    session = assembly.open_session(None)
    try:
        for row in rows:
            restore(template, work)
            if row.expect == "host":
                # A host that was asked about is not asked about again in a session.
                await session.close()
                person.has_approved = False
                session = assembly.open_session(None)
            if not person.has_approved:
                # What only reads runs unasked; this writes, and is taken back.
                first = await session.call("run_command", command="touch asked.txt")
                if not (first.success and person.has_approved):
                    raise SystemExit(f"all commands were not offered: {first.error_message}")
                restore(template, work)
            person.requests.clear()
            given = {"command": row.command, "cwd": row.cwd, "timeout": TIMEOUT, "restart": True}
            result = await session.call("run_command", **given)
            yield Outcome(row, _classify(result, person.requests), _describe(result, person))
    finally:
        await assembly.close(session)


def _classify(result: ToolResult, asked: list[ApprovalRequest]) -> str:
    if asked:
        about_hosts = all(request.tool.name == OPENING_TOOL.name for request in asked)
        return "host" if about_hosts else "asks"
    if HOST.search(str(result.data)):
        return "host"
    refused = ("permission_denied", "validation_failed")
    return "refused" if str(result.error_type) in refused else "runs"


def _describe(result: ToolResult, person: Person) -> str:
    if person.requests:
        return person.requests[0].reason
    return str(result.data if result.success else result.error_message)
