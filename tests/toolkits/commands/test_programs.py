"""An `Agent` in a program: the tools say what confines them, and the gate asks them."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from ferrule import COMMAND, Agent, Permissions, Scripted, Tool, tool
from ferrule.core.calls import ToolResult
from ferrule.core.vocabulary import PermissionMode
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.plugins import Parts
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.testing import RecordingApprover, calls, says
from ferrule.toolkits import COMMAND_TOOLS, FILE_TOOLS, CommandPolicy
from ferrule.toolkits.commands import command_tools, confinement, run_command
from ferrule.toolkits.commands.confinement import find_confinement
from ferrule.toolkits.subfolder import limit_tools, move_tools
from ferrule.tools.definition import Confinement
from ferrule.tools.result_formatting import replace_handler

UNCONFINED = CommandPolicy(on_missing_protection="off")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace in which this machine confines commands."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    if find_confinement({Workspace: Workspace(folder)}) is None:
        pytest.skip("this machine cannot hold commands as required")
    return folder


async def run(
    work: Path,
    *wanted: tuple[str, dict[str, Any]],
    mode: PermissionMode = "default",
    tools: Any = (*COMMAND_TOOLS, *FILE_TOOLS),
    policy: CommandPolicy | None = None,
    **rules: Any,
) -> tuple[list[ToolResult], list[str]]:
    """Return the results of calls, and the commands and tools that a person was asked about."""
    person = RecordingApprover(["deny"])
    agent = Agent(
        Scripted([calls(one) for one in wanted] + [says("ok")]),
        tools,
        workspace=work,
        permissions=Permissions(mode=mode, approver=person, **rules),
        plugins=[] if policy is None else [Parts(resources=[policy])],
    )
    async with agent:
        results = (await agent.run("go")).results
    asked = [str(one.values.get("command", one.tool.name)) for one in person.requests]
    return list(results), asked


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return ("run_command", {"command": command})


async def test_commands_that_only_read_run_unasked(work: Path) -> None:
    reads = ("ls", "cat a.txt", "git status", "grep -rn one . | head -3", "ls /usr/bin | tail -1")
    results, asked = await run(work, *map(shell, reads))
    assert asked == []
    assert results[1].data == "one\n"
    assert all(result.error_type != "permission_denied" for result in results)


async def test_a_worktree_that_no_command_links_is_told_with_the_way_on(work: Path) -> None:
    subprocess.run(["git", "init", "-q", work], check=True)
    begin = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    steps = (
        "git worktree add wt",
        "git clone -q . /tmp/wt && cd /tmp/wt && git checkout -q -b new",
        "git fetch -q /tmp/wt new:new && git branch --list new",
    )
    results, _ = await run(work, *map(shell, (begin, *steps)), mode="sandboxed")
    refused = str(results[1].data)
    if "not created" not in refused:
        pytest.skip("this backend refuses the name in another way")
    assert "git clone -q . /tmp/NAME" in refused
    assert [result.success for result in results] == [True] * 4
    assert results[3].data == "  new\n"
    assert not (work / "wt").exists()


async def test_mode_sandboxed_asks_only_what_the_sandbox_does_not_hold(work: Path) -> None:
    edit = {"path": "a.txt", "old_string": "one", "new_string": "two"}
    wanted = [
        shell("echo x > b.txt && sh -c 'cat b.txt'"),
        ("edit_file", edit),
        shell("rm a.txt"),
        shell("git push"),
        ("delete_path", {"path": "a.txt"}),
    ]
    results, asked = await run(work, *wanted, mode="sandboxed")
    assert asked == ["rm a.txt", "git push", "delete_path"]
    assert [result.success for result in results] == [True, True, False, False, False]
    assert (work / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize("mode", ["default", "sandboxed"])
async def test_where_nothing_confines_commands_all_of_them_ask(
    work: Path, mode: PermissionMode
) -> None:
    commands = ("ls", "git status", "echo x > b.txt")
    _, asked = await run(work, *map(shell, commands), mode=mode, policy=UNCONFINED)
    assert asked == [*commands]


async def test_a_machine_without_a_sandbox_asks(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "choose_confining_backend", lambda confine, policy: None)
    _, asked = await run(work, shell("ls"), shell("make"), mode="sandboxed")
    assert asked == ["ls", "make"]


async def test_rules_hold_as_on_the_command_line(work: Path) -> None:
    _, asked = await run(work, shell("ls"), shell("make"), mode="sandboxed", ask=["Bash(ls:*)"])
    assert asked == ["ls"]
    results, asked = await run(work, shell("ls"), mode="sandboxed", deny=["Bash(ls:*)"])
    assert asked == [] and not results[0].success


async def test_two_agents_with_one_gate_ask_as_their_own_runs_are_confined(work: Path) -> None:
    held = Agent(Scripted([]), COMMAND_TOOLS, workspace=work)
    shared = Permissions(gate=held.gate)
    free = Agent(
        Scripted([]),
        COMMAND_TOOLS,
        workspace=work,
        permissions=shared,
        plugins=[Parts(resources=[UNCONFINED])],
    )
    for agent, verdict in ((held, "allow"), (free, "ask"), (held, "allow")):
        assert agent.gate.decide(run_command, {"command": "ls"}).verdict == verdict
    assert free.gate.grants is held.gate.grants
    for agent in (held, free):
        await agent.close()


def decide(made: Tool, work: Path) -> str:
    agent = Agent(Scripted([]), [made], workspace=work)
    return agent.gate.decide(made, {"command": "ls"}).verdict


def test_every_form_of_our_own_command_tool_says_it(work: Path) -> None:
    full = command_tools()[0]
    moved = move_tools([run_command], "sub")[0]
    limited = limit_tools([run_command], "sub")[0]
    shown = replace_handler(run_command, run_command.handler)
    for made in (run_command, full, moved, limited, shown, replace(run_command, name="sh")):
        assert decide(made, work) == "allow", made


def test_a_tool_of_somebody_else_does_not_claim_it_by_accident(work: Path) -> None:
    @functools.wraps(run_command.handler)
    async def wrapper(command: str, **more: Any) -> str:
        return command

    @tool(side_effect="execute", risk="high")
    def run_it(command: Annotated[str, COMMAND]) -> str:
        """Run it."""
        return command

    @tool(name="run_command", side_effect="execute", risk="high")
    def same_name(command: Annotated[str, COMMAND]) -> str:
        """Run it."""
        return command

    copied = replace(run_command, handler=wrapper)
    marked = replace(run_it, annotations={"confined": run_command.confined})
    taken = replace(run_it, confined=run_command.confined)
    for made in (run_it, same_name, copied, marked, taken, copied.wrap(wrapper)):
        assert decide(made, work) == "ask", made


def test_a_program_can_say_it_of_its_own_tool(work: Path) -> None:
    seen: list[Mapping[type, object]] = []

    def find(resources: Mapping[type, object]) -> Confinement:
        seen.append(resources)
        return Confinement()

    @tool(side_effect="execute", risk="high", confined_by=find)
    def run_it(command: Annotated[str, COMMAND]) -> str:
        """Run it in a machine of its own."""
        return command

    assert decide(run_it, work) == "allow"
    assert Workspace in seen[0]


def test_a_claim_that_fails_is_a_no(work: Path) -> None:
    def find(resources: Mapping[type, object]) -> Confinement:
        raise RuntimeError("gone")

    @tool(side_effect="execute", risk="high", confined_by=find)
    def run_it(command: Annotated[str, COMMAND]) -> str:
        """Run it."""
        return command

    assert decide(run_it, work) == "deny"


def test_what_a_program_requires_less_is_not_taken_for_a_sandbox(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = CommandPolicy(confine=SandboxPolicy(work, require=frozenset()))
    given = {Workspace: Workspace(work), CommandPolicy: policy}
    backend = confinement.choose_confining_backend(policy.confine, policy)  # pyright: ignore[reportArgumentType]
    assert backend is not None
    named = replace(backend, name="none")
    monkeypatch.setattr(confinement, "choose_confining_backend", lambda confine, policy: named)
    assert find_confinement(given) is None
