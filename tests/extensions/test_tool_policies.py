"""`policy` in a tool file: the same keys as everywhere."""

from __future__ import annotations

import pytest

from ferrule import Agent, Permissions, Storage
from ferrule.core.errors import ConfigError
from ferrule.core.events import Noticed
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.handlers import make_tool
from ferrule.extensions.tool_files.tool_file import ToolFile, parse_tool
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.reliability import Reliability

LOOP = (
    "  def run(args):\n      for i in range(2000000000):\n          for j in "
    "range(2000000000):\n              pass\n"
)


def file(lines: str, script: str = "  def run(args):\n      return 1\n") -> ToolFile:
    return parse_tool(f"---\n{lines}\nscript: |\n{script}---\nMine.\n".encode(), "tools/t.md")


def test_a_tool_file_says_attempts_and_waits_and_its_time_under_either_name() -> None:
    found = file(
        "policy: {max_attempts: 2, timeout_ms: 1500, retry_on: [timeout], backoff_base_ms: 0}"
    )
    assert found.timeout_ms == 1500
    assert make_tool(found, ScriptEnvironment()).reliability == Reliability(
        timeout=3.5, max_attempts=2, backoff=0, retry_on=("timeout",)
    )
    assert make_tool(
        file("timeout_ms: 1500\npolicy: {max_attempts: 2}"), ScriptEnvironment()
    ).reliability == Reliability(timeout=3.5, max_attempts=2)
    with pytest.raises(ConfigError, match=r"t\.md:2:\d+: tool `t`: its timeout is given twice"):
        file("timeout_ms: 1500\npolicy: {timeout_ms: 1500}")


@pytest.mark.proves("reliability.policy-checked")
@pytest.mark.parametrize("line", ["retry_on: [often]", "tries: 3", "max_attempts: 0"])
def test_what_the_policy_of_a_tool_file_cannot_mean_is_an_error_at_its_place(line: str) -> None:
    with pytest.raises(ConfigError, match=r"tools/t\.md:2:\d+: `policy`: .*" + line.split(":")[0]):
        file(f"policy: {{{line}}}")


@pytest.mark.parametrize(
    ("effect", "attempts"), [("read", "2 attempts, the last failed as timeout"), ("write", "")]
)
async def test_a_script_that_runs_out_of_time_is_tried_again_if_it_only_reads(
    shared_workers: WorkerPool, effect: str, attempts: str
) -> None:
    loop = file(
        f"side_effect: {effect}\npolicy: {{max_attempts: 2, timeout_ms: 50, backoff_base_ms: 0}}",
        LOOP,
    )
    with SqliteJournal(":memory:") as journal:
        tools = [make_tool(loop, ScriptEnvironment(), pool=shared_workers)]
        agent = Agent(
            Scripted([calls(("t", {})), says("so be it")]),
            tools,
            storage=Storage(journal=journal),
            permissions=Permissions(mode="acceptEdits", allow=["t"]),
        )
        ran = await agent.run("go")
        noted = [
            one.event.text for one in journal.records(ran.session) if isinstance(one.event, Noticed)
        ]
    assert noted == ([f"`t`: {attempts}"] if attempts else [])
    assert "50 ms" in (ran.results[0].error_message or "")
