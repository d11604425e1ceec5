"""What held a session's commands, and what a person answered about it, stands in the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule.core.events import ConsentAnswered, Noticed, ToolAnswered
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.models.scripted import Scripted
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.plugins import Parts
from ferrule.sandbox.backends import selection
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtection, MissingProtections
from ferrule.sandbox.policy import ALL_PROTECTIONS, Protection, SandboxPolicy
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.commands import CommandOptions, CommandPolicy, command_tools
from ferrule.toolkits.commands import session_sandbox as confined_module


class Person:
    """Answers the same each time."""

    def __init__(self, choice: Any) -> None:
        self.choice = choice

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(self.choice, by="ann", note="for today")


class Run:
    """A session whose journal is read afterwards."""

    def __init__(
        self, folder: Path, policy: CommandPolicy, choice: Any = "deny", **options: Any
    ) -> None:
        self.journal = SqliteJournal(":memory:")
        self.session = Agent(
            Scripted([]),
            command_tools(CommandOptions(output_format="value", **options)),
            workspace=folder,
            permissions=Permissions(allow=["Bash"], approver=Person(choice)),
            storage=Storage(journal=self.journal),
            plugins=[Parts(resources=[policy])],
        ).session()

    async def command(self, *argv: str) -> Any:
        return await self.session.call("run_command", command=list(argv), mode="argv")

    def events(self) -> list[Any]:
        return [record.event for record in self.journal.records(self.session.id)]

    def consents(self) -> list[ConsentAnswered]:
        return [event for event in self.events() if isinstance(event, ConsentAnswered)]

    def notes(self, topic: str) -> list[str]:
        return [
            event.text
            for event in self.events()
            if isinstance(event, Noticed) and event.topic == topic
        ]


def less(policy: SandboxPolicy, probes: Any) -> Any:
    last = selection.available_backends(policy, probes)[-1]
    raise MissingProtections(
        (MissingProtection(Protection.NETWORK, "not here", "buy another machine"),), last
    )


async def test_what_holds_commands_is_noted_once_with_every_aspect(tmp_path: Path) -> None:
    policy = SandboxPolicy(tmp_path, require=frozenset())
    run = Run(tmp_path, CommandPolicy(confine=policy))
    for _ in range(2):
        await run.command("true")
    await run.session.close()
    (note,) = run.notes("sandbox")
    assert f"`{selection.choose_backend(policy, probe()).name}`" in note and all(
        str(aspect) in note for aspect in ALL_PROTECTIONS
    )


@pytest.mark.parametrize("choice", ["session", "deny"])
async def test_the_answer_about_a_gap_is_noted_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    monkeypatch.setattr(confined_module, "choose_backend", less)
    run = Run(
        tmp_path,
        CommandPolicy(confine=SandboxPolicy(tmp_path), on_missing_protection="ask"),
        choice,
    )
    for _ in range(2):
        result = await run.command("true")
        assert result.success is (choice == "session")
    await run.session.close()
    (answered,) = run.consents()
    assert (answered.choice, answered.by, answered.note) == (choice, "ann", "for today")
    assert (answered.call_id, answered.tool) == ("sandbox-gap", "unconfined_commands")
    assert "without: network" in answered.question and answered.digest
    (held,) = run.notes("sandbox")
    assert ("`none`" if choice == "session" else "commands are refused") in held
    kinds = [type(event) for event in run.events()]
    assert kinds.index(ConsentAnswered) < kinds.index(ToolAnswered)


async def test_a_refusal_without_anybody_to_ask_is_noted_once_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_module, "choose_backend", less)
    run = Run(tmp_path, CommandPolicy(confine=SandboxPolicy(tmp_path)))
    for _ in range(2):
        assert not (await run.command("true")).success
    await run.session.close()
    (note,) = run.notes("sandbox")
    assert (
        "commands are refused" in note
        and "network (not here)" in note
        and "buy another machine" in note
    )
    assert run.consents() == []


@pytest.mark.parametrize("choice", ["once", "deny"])
async def test_the_answer_to_a_command_policys_question_is_noted(
    tmp_path: Path, choice: str
) -> None:
    def asks(request: Any, args: Any) -> dict[str, Any]:
        return {"require_approval": True, "reason": "this deploys"}

    held = CommandPolicy(confine=SandboxPolicy(tmp_path, require=frozenset()))
    run = Run(tmp_path, held, choice, command_policy=asks)
    await run.command("true")
    await run.session.close()
    (answered,) = run.consents()
    assert (answered.choice, answered.by, answered.tool) == (choice, "ann", "run_command")
    assert answered.question == "this deploys"
