"""Commands of one answer that only read run side by side."""

from __future__ import annotations

import pytest

from ferrule.core.events import EXCLUSIVE
from ferrule.toolkits.commands import run_command
from ferrule.toolkits.files.tools import write_file
from ferrule.toolkits.model_family_tools import anthropic, openai, qwen
from ferrule.tools.definition import Tool

BASH = anthropic.SHAPES[0]


@pytest.mark.parametrize("tool", [run_command, BASH, qwen.run_shell_command])
def test_reading_commands_overlap_with_each_other_and_not_with_writes(tool: Tool) -> None:
    sleep = tool.access({"command": "sleep 3; echo a"})
    listing = tool.access({"command": "ls -la | head -3"})
    assert not sleep.conflicts_with(listing)
    assert not sleep.conflicts_with(sleep)
    assert sleep.conflicts_with(write_file.access({"path": "a.txt", "content": ""}))


@pytest.mark.parametrize(
    "values",
    [
        {"command": "make"},
        {"command": "cd sub && ls"},
        {"command": "echo a > b"},
        {"command": "X=1"},
        {"command": "ls", "background": True},
        {"command": "ls", "restart": True},
        {"command": ""},
    ],
)
def test_anything_else_runs_alone(values: dict[str, object]) -> None:
    assert run_command.access(values) == EXCLUSIVE
    assert BASH.access(values) == EXCLUSIVE


def test_several_lines_of_one_call_are_judged_together() -> None:
    assert openai.shell.access({"commands": ["ls", "cat a"]}) != EXCLUSIVE
    assert openai.shell.access({"commands": ["ls", "make"]}) == EXCLUSIVE
