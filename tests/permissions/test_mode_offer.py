"""The key that changes the mode: who is offered it, what it does, and where it is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confined_tools import hold

from ferrule import Agent, Permissions, Scripted, Storage
from ferrule.cli.permission_prompt import TerminalApprover, answer_keys
from ferrule.cli.terminal import Terminal
from ferrule.core.calls import ToolCall
from ferrule.core.events import PersonAnswered
from ferrule.core.identity import Identity
from ferrule.core.vocabulary import PermissionMode
from ferrule.engine.delegation.inherited_parts import AgentApprover
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.plugins import Parts
from ferrule.runtime.sandbox_policy import forget_mode, make_mode_writer
from ferrule.storage import SqliteJournal, paths
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.settings.writing import open_for_folder
from ferrule.storage.trust import TrustStore
from ferrule.testing import calls, says
from ferrule.toolkits.commands import run_command
from ferrule.toolkits.files import tools
from ferrule.tools.definition import Confinement

HELD = Confinement(("/usr",), ("/tmp",), shared=("/tmp",))


def make_gate(
    *,
    held: bool = True,
    mode: PermissionMode = "default",
    kept: list[str] | None = None,
    rules: RuleSet | None = None,
) -> PermissionGate:
    keep: list[str] = [] if kept is None else kept
    return PermissionGate(
        rules,
        mode=mode,
        root=Path("/work/shop"),
        resources={Confinement: HELD} if held else {},
        remember_mode=keep.append,
    )


def offered(gate: PermissionGate, command: str) -> list[str]:
    offers = gate.decide(hold(run_command), {"command": command}).offers
    return [offer.rule for offer in offers if offer.choice == "mode"]


def test_the_mode_is_offered_where_the_sandbox_holds_and_it_would_have_allowed() -> None:
    assert offered(make_gate(), "make && ./run.sh") == ["sandboxed"]
    edit = {"path": "a.py", "old_string": "a", "new_string": "b"}
    offers = make_gate().decide(hold(tools.edit_file), edit).offers
    assert offers[-1].choice == "mode"
    assert offered(make_gate(held=False), "make") == []
    assert offered(make_gate(), "git push") == []
    assert offered(make_gate(), "rm README.md") == []
    assert offered(make_gate(rules=RuleSet.parse(ask=["Bash(make:*)"])), "make") == []
    assert offered(PermissionGate(root=Path("/work/shop")), "make") == []


async def test_one_key_ends_the_questions_of_the_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts: list[str] = []

    async def read(prompt: str) -> str:
        prompts.append(prompt)
        return "5\n"

    edits = [("write_file", {"path": name, "content": "x"}) for name in ("a", "b")]
    agent = Agent(
        Scripted([calls(*edits), calls(("write_file", {"path": "c", "content": "x"})), says("ok")]),
        [hold(tools.write_file)],
        plugins=[Parts(resources=[HELD])],
        workspace=tmp_path,
        permissions=Permissions(approver=TerminalApprover(Terminal(), read, user="ada")),
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    kept: list[str] = []
    agent.gate.remember_mode = kept.append
    session = agent.session()
    results = (await session.run("go")).results
    assert [result.success for result in results] == [True, True, True]
    assert len(prompts) == 1 and "[1-5]" in prompts[0]
    assert session.mode == "sandboxed" and kept == ["sandboxed"]
    answers = [
        record.event
        for record in agent.journal.records(session.id)
        if isinstance(record.event, PersonAnswered)
    ]
    assert [one.choice for one in answers] == ["mode", "session"]
    await session.close()
    await agent.close()
    shown = capsys.readouterr()
    assert "[5] sandboxed" in shown.out + shown.err


async def test_a_sub_agents_question_offers_no_mode() -> None:
    seen: list[ApprovalRequest] = []

    class Person:
        async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
            seen.append(request)
            return ApprovalAnswer("deny")

    decision = make_gate().decide(hold(run_command), {"command": "make"})
    asked = ApprovalRequest(
        ToolCall("c", "run_command"),
        run_command,
        "high",
        "why",
        (),
        "",
        decision.offers,
        "d",
        Identity("local", "ada", "s", "r"),
    )
    assert any(key.choice == "mode" for key in answer_keys(asked))
    await AgentApprover(Person, "helper").ask(asked)
    assert not any(key.choice == "mode" for key in answer_keys(seen[0]))


@pytest.mark.parametrize(
    ("command", "remembered"),
    [
        ("pytest -q tests/test_shop.py", ["Bash(pytest:*)"]),
        ("python3 -m pytest -q", ["Bash(python3 -m pytest:*)"]),
        ("npm run build -- --watch", ["Bash(npm run build:*)"]),
        ("python3 make_page.py", []),
        ("python3 -m http.server", []),
    ],
)
def test_a_whole_line_is_offered_for_the_session_and_never_to_be_remembered(
    command: str, remembered: list[str]
) -> None:
    offers = make_gate().decide(run_command, {"command": command}).offers
    assert [one.rule for one in offers if one.choice == "remember"] == remembered
    assert f"Bash({command})" in [one.rule for one in offers if one.choice == "session"]


def settings_of(folder: Path) -> Any:
    return load_settings(workspace=folder)


def test_a_trusted_folder_remembers_the_mode_until_its_configuration_changes(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    project = tmp_path / "project"
    (project / ".ferrule").mkdir(parents=True)
    configuration = project / ".ferrule" / "ferrule.yaml"
    configuration.write_text("limits: {max_turns: 30}\n")
    make_mode_writer(settings_of(project), said.append)("sandboxed")
    assert "until this session ends" in said[-1] and settings_of(project).mode == "default"
    TrustStore().trust(project)
    make_mode_writer(settings_of(project), said.append)("sandboxed")
    assert "remembered for this folder" in said[-1]
    assert settings_of(project).mode == "sandboxed"
    assert settings_of(tmp_path).mode == "default"
    configuration.write_text("limits: {max_turns: 31}\n")
    assert settings_of(project).mode == "default"
    TrustStore().trust(project)
    assert settings_of(project).mode == "sandboxed"
    assert load_settings(workspace=project, flags={"mode": "plan"}).mode == "plan"


def test_a_mode_is_forgotten_and_what_was_opened_beside_it_stays(tmp_path: Path) -> None:
    file = paths.config() / "ferrule.yaml"
    open_for_folder(file, str(tmp_path), "network", "a.example:443")
    said: list[str] = []
    make_mode_writer(settings_of(tmp_path), said.append)("sandboxed")
    assert settings_of(tmp_path).mode == "sandboxed"
    assert forget_mode(settings_of(tmp_path))
    settings = settings_of(tmp_path)
    assert settings.mode == "default" and settings["sandbox.network"] == ("a.example:443",)
    assert not forget_mode(settings)
    file.write_text("folders: # mine\n  /a: {network: []}\n")
    make_mode_writer(settings_of(tmp_path), said.append)("sandboxed")
    assert "not remembered" in said[-1]
