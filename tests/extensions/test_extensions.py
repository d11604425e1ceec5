"""What files bring to an agent: their tools beside those that ship, their hooks, and nothing before
trust.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule import Agent, Catalog, Scripted
from ferrule.engine.hooks.events import Action
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.extensions import Extensions, load_extensions
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.loading import load_tools
from ferrule.hooks import ToolPre, block, hook
from ferrule.storage.trust import TrustStore
from ferrule.toolkits import commands
from ferrule.toolkits.files import tools as files
from ferrule.tools.definition import Tool
from grouped_options import grouped

SHIPPED = (*files.TOOLS, *commands.TOOLS)
ECHO = b"""---
parameters:
  text: { type: string, required: true }
side_effect: none
script: |
  def run(args):
      return exec.run("echo", [args["text"]])["stdout"].strip()
---
Echo a text.
"""
GUARD = b"""---
on: tool.pre
when: name == "run_command"
script: |
  def handle(event, payload):
      return block("no commands here")
---
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for name, data in (("tools/run_command.md", ECHO), ("hooks/guard.md", GUARD)):
        (folder / ".ferrule" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / ".ferrule" / name).write_bytes(data)
    return folder


def agent_with(tools: tuple[Tool, ...], folder: Path, **options: object) -> Agent:
    return Agent(Scripted([]), Catalog(tools), **grouped(workspace=folder, **options))  # type: ignore[arg-type]


def extensions(folder: Path, pool: WorkerPool) -> Extensions:
    return load_extensions(TrustStore().read(folder), pool=pool)


@pytest.fixture
def taken(tmp_path: Path, shared_workers: WorkerPool) -> tuple[Tool, ...]:
    """The tools that ship, beside a file that is named like one of them and uses it."""
    return load_tools({".ferrule/tools/run_command.md": ECHO}).make_tools(
        ScriptEnvironment(), shipped=SHIPPED, pool=shared_workers
    )


async def test_a_file_takes_the_name_of_a_tool_that_ships_and_its_script_still_uses_that(
    taken: tuple[Tool, ...], tmp_path: Path
) -> None:
    agent = agent_with(taken, tmp_path, allow=["run_command", "Bash(echo:*)"])
    shown = [spec.name for spec in agent.visible_tools.specs()]
    assert shown.count("run_command") == 1
    assert not [name for name in shown if "::" in name or name in ("read_text", "stat_path")]
    session = agent.session()
    result = await session.call("run_command", text="hello")
    assert (result.success, result.data) == (True, "hello")
    await session.close()


@pytest.mark.parametrize(
    "rules",
    [{"deny": ["Bash(echo:*)"]}, {"ask": ["run_command"]}, {"ask": ["Bash(echo:*)"]}],
)
async def test_the_tool_that_lost_its_name_keeps_its_rules(
    rules: dict[str, list[str]], taken: tuple[Tool, ...], tmp_path: Path, shared_workers: WorkerPool
) -> None:
    """The script's own command meets the gate: a yes to the file is no yes to what it runs."""
    other = load_tools({".ferrule/tools/other.md": ECHO, ".ferrule/tools/run_command.md": ECHO})
    tools = other.make_tools(ScriptEnvironment(), shipped=SHIPPED, pool=shared_workers)
    session = agent_with(tools, tmp_path, allow=["other"], **rules).session()
    result = await session.call("other", text="hello")
    assert (result.success, result.error_type) == (False, "permission_denied")
    assert "not run" in str(result.error_message)
    await session.close()


async def test_a_guard_knows_the_tool_that_lost_its_name_by_that_name(
    taken: tuple[Tool, ...], tmp_path: Path, shared_workers: WorkerPool
) -> None:
    seen: list[str] = []

    @hook("tool.pre")
    def watch(call: ToolPre) -> Action | None:
        seen.append(call.name)
        return block("enough") if len(seen) == 2 else None

    agent = agent_with(taken, tmp_path, allow=["run_command", "Bash(echo:*)"], hooks=[watch])
    session = agent.session()
    result = await session.call("run_command", text="hello")
    assert seen == ["run_command", "run_command"]
    assert "enough" in str(result.error_message)
    await session.close()


async def test_before_trust_files_bring_nothing_and_afterwards_their_tools_and_hooks(
    repository: Path, shared_workers: WorkerPool
) -> None:
    before = extensions(repository, shared_workers)
    assert before.make_tools(SHIPPED) == SHIPPED
    assert before.hooks == ()
    assert before.notices == (
        "hooks of this folder have no effect until you trust it: .ferrule/hooks/guard.md",
    )
    TrustStore().trust(repository)
    brought = extensions(repository, shared_workers)
    assert [hook.name for hook in brought.hooks] == ["guard"]
    assert any("run_command.md has the same" in said for said in brought.describe_hidden(SHIPPED))
    agent = agent_with(
        brought.make_tools(SHIPPED), repository, allow=["run_command"], hooks=brought.hooks
    )
    session = agent.session()
    result = await session.call("run_command", text="hello")
    assert "no commands here" in str(result.error_message)
    await session.close()
    await brought.close()
