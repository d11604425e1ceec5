"""Each family of models reads, edits, runs tests, fails and mends with the tools it was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted
from ferrule.core.calls import ErrorType
from ferrule.permissions.approvals import ApprovalAnswer
from ferrule.plugins import Parts
from ferrule.runtime.chosen_plugins import load_shipped_tools
from ferrule.testing import RecordingApprover, calls, says
from ferrule.toolkits.commands import CommandPolicy

TEST = "import adder\n\nassert adder.add(1, 2) == 3, adder.add(1, 2)\nprint('passed')\n"
WRONG = "def add(a, b):\n    return a - b\n"
OLD, WORSE, RIGHT = "    return a - b", "    return a * b", "    return a + b"
RUN = "PYTHONPATH=. python3 -B tests/test_adder.py"


def patch(old: str, new: str) -> str:
    return f"*** Begin Patch\n*** Update File: adder.py\n@@\n-{old}\n+{new}\n*** End Patch"


FAMILIES: dict[str, tuple[str, list[tuple[str, Mapping[str, Any]]]]] = {
    "gpt": (
        "openai:gpt-5.2",
        [
            ("read_file", {"path": "adder.py"}),
            ("apply_patch", {"input": patch(OLD, WORSE)}),
            ("run_command", {"command": RUN}),
            ("run_command", {"command": f"apply_patch <<'EOF'\n{patch(WORSE, RIGHT)}\nEOF"}),
            ("run_command", {"command": f"{RUN} | cat"}),
        ],
    ),
    "gpt-responses": (
        "openai-responses:gpt-5.2-codex",
        [
            ("shell", {"commands": ["cat adder.py", "ls"]}),
            ("apply_patch", {"input": patch(OLD, WORSE)}),
            ("shell", {"commands": [RUN], "timeout_ms": 60000, "max_output_length": 9000}),
            ("shell", {"commands": [f"apply_patch <<'EOF'\n{patch(WORSE, RIGHT)}\nEOF"]}),
            ("shell", {"commands": [RUN]}),
        ],
    ),
    "gpt-local-shell": (
        "openai-responses:codex-mini-latest",
        [
            ("local_shell", {"command": ["cat", "adder.py"]}),
            ("local_shell", {"command": ["apply_patch", patch(OLD, WORSE)]}),
            ("local_shell", {"command": ["bash", "-lc", RUN], "timeout_ms": 60000}),
            ("apply_patch", {"input": patch(WORSE, RIGHT)}),
            (
                "local_shell",
                {
                    "command": ["python3", "-B", "test_adder.py"],
                    "working_directory": "tests",
                    "env": {"PYTHONPATH": ".."},
                },
            ),
        ],
    ),
    "claude": (
        "anthropic:claude-sonnet-5",
        [
            ("str_replace_based_edit_tool", {"command": "view", "path": "adder.py"}),
            (
                "str_replace_based_edit_tool",
                {"command": "str_replace", "path": "adder.py", "old_str": OLD, "new_str": WORSE},
            ),
            ("bash", {"command": RUN}),
            ("bash", {"command": f"apply_patch <<'EOF'\n{patch(WORSE, RIGHT)}\nEOF"}),
            ("bash", {"command": RUN}),
        ],
    ),
    "gemini": (
        "google:gemini-3-pro",
        [
            ("read_many_files", {"include": ["**/*.py"]}),
            ("replace", {"file_path": "adder.py", "old_string": OLD, "new_string": WORSE}),
            ("run_shell_command", {"command": RUN, "description": "Test"}),
            ("replace", {"file_path": "adder.py", "old_string": WORSE, "new_string": RIGHT}),
            ("run_shell_command", {"command": "PYTHONPATH=.. python3 -B test_adder.py", "dir_path": "tests"}),
        ],
    ),
    "qwen": (
        "ollama:qwen3-coder:30b",
        [
            ("read_file", {"file_path": "adder.py", "line_start": 2}),
            ("edit", {"file_path": "adder.py", "old_string": OLD, "new_string": WORSE}),
            ("run_shell_command", {"command": RUN, "timeout": 60000}),
            ("write_file", {"file_path": "adder.py", "content": WRONG.replace(OLD, RIGHT)}),
            ("run_shell_command", {"command": "PYTHONPATH=.. python3 -B test_adder.py", "directory": "tests"}),
        ],
    ),
}  # fmt: skip


def make_agent(
    folder: Path, model: str, script: Sequence[Any] = (), **more: Any
) -> Agent[Any, Any]:
    family = "gpt" if "gpt" in model or "codex" in model else "auto"
    tools = load_shipped_tools(model, shapes={"shapes": family})
    (folder / "tests").mkdir()
    (folder / "adder.py").write_text(WRONG)
    (folder / "tests/test_adder.py").write_text(TEST)
    return Agent(
        Scripted(list(script)),
        tools,
        workspace=folder,
        permissions=Permissions(**{"approver": RecordingApprover(), **more}),
        plugins=[Parts(resources=[CommandPolicy(on_missing_protection="off", shell_allowed=True)])],
    )


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_family_reads_edits_fails_and_mends_with_its_own_tools(
    tmp_path: Path, family: str
) -> None:
    model, steps = FAMILIES[family]
    agent = make_agent(tmp_path, model, [*(calls(step) for step in steps), says("Done.")])
    offered = {spec.name for spec in agent.visible_tools.specs()}
    assert {name for name, _ in steps} <= offered
    run = await agent.run("Mend the addition.")
    read, edited, failed, mended, passed = run.results
    assert read.success and "return a - b" in str(read.data), read
    assert edited.success and mended.success, (edited, mended)
    assert "AssertionError" in str(failed.data) and "1" in str(failed.data)
    assert passed.success and "passed" in str(passed.data), passed
    assert (tmp_path / "adder.py").read_text() == WRONG.replace(OLD, RIGHT)


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_gate_judges_the_call_that_does_the_work(tmp_path: Path, family: str) -> None:
    model, steps = FAMILIES[family]
    asked = RecordingApprover(lambda request: ApprovalAnswer("deny", by="test"))
    agent = make_agent(tmp_path, model, approver=asked, deny=["Read(adder.py)"])
    session = agent.session()
    for name, arguments in steps:
        if name == "read_many_files":
            # A glob finds the rest, and nothing that may not be read.
            found = await session.call(name, **arguments)
            assert found.success and str(found.data).startswith("--- tests/test_adder.py ---\n")
            assert "--- adder.py" not in str(found.data) and OLD not in str(found.data)
            arguments = {"include": ["adder.py"]}
        refused = await session.call(name, **arguments)
        text = str(refused.data)
        assert OLD not in text
        is_told = "denied" in text or "deny" in text
        assert refused.error_type is ErrorType.PERMISSION_DENIED or is_told, (name, refused)
    await session.close()
    own = {
        "read_file",
        "list_files",
        "search_files",
        "edit_file",
        "write_file",
        "run_command",
        "glob",
    }
    assert {request.tool.rule_name for request in asked.requests} <= own
    assert (tmp_path / "adder.py").read_text() == WRONG


async def test_names_are_found_and_searched_under_the_names_of_each_family(tmp_path: Path) -> None:
    for family, folder in (("gemini", "dir_path"), ("qwen", "path")):
        place = tmp_path / family
        place.mkdir()
        session = make_agent(place, FAMILIES[family][0]).session()
        (place / ".env").write_text("KEY=1")
        found = await session.call("glob", pattern="**/*.py")
        assert set(str(found.data).split("\n")) == {"adder.py", "tests/test_adder.py"}
        below = await session.call("glob", pattern="*.py", **{folder: "tests"})
        assert below.data == "tests/test_adder.py"
        none = await session.call("glob", pattern="*.env*")
        assert none.data == "[no file matches `*.env*`]"
        searched = await session.call("grep_search", pattern="def add", **{folder: "."})
        assert "adder.py:1" in str(searched.data)
        listed = await session.call("list_directory", **{folder: "tests"})
        assert "test_adder.py" in str(listed.data)
        missing = await session.call("read_file", file_path="adder.txt")
        assert missing.error_type is ErrorType.NOT_FOUND
        await session.close()


async def test_a_shell_call_says_what_ran_before_a_command_was_refused(tmp_path: Path) -> None:
    session = make_agent(tmp_path, FAMILIES["gpt-responses"][0], deny=["Bash(rm:*)"]).session()
    result = await session.call("shell", commands=["echo one", "false", "rm adder.py", "echo two"])
    one, failed, refused = json.loads(json.dumps(result.data))["output"]
    assert one == {"stdout": "one\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    assert failed["outcome"] == {"type": "exit", "exit_code": 1}
    assert refused["outcome"]["exit_code"] == 126 and "Bash(rm:*)" in refused["stderr"]
    alone = await session.call("shell", commands=["rm adder.py"])
    assert alone.error_type is ErrorType.PERMISSION_DENIED
    slow = await session.call("shell", commands=["echo one", "sleep 30"], timeout_ms=300)
    assert slow.data["output"][1]["outcome"] == {"type": "timeout"}
    cut = await session.call("shell", commands=["seq 1 1000"], max_output_length=10)
    assert cut.data["output"][0]["stdout"].startswith("1\n2\n3\n[3")
    for wrong in ({"commands": []}, {"commands": [" "]}):
        assert (await session.call("shell", **wrong)).error_type is ErrorType.VALIDATION_FAILED
    await session.close()
