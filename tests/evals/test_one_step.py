"""One-step tasks as cases: what counts as the right call."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.evaluation.call_matching import find_call_problems
from ferrule.evaluation.evidence import MadeCall, ToolFacts

EVALS = Path(__file__).parents[2] / "evals"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EVALS))
    monkeypatch.delitem(sys.modules, "run", raising=False)
    return importlib.import_module("run")


@pytest.mark.parametrize(
    ("tool", "arguments", "right"),
    [
        ("read_file", {"path": "a.md"}, True),
        ("read_file", {"path": "./a.md"}, True),
        ("read_file", {"path": "b.md"}, True),
        ("read_file", {"path": "c.md"}, False),
        ("read_file", {"path": "a.md", "line_start": 3}, False),
        ("run_command", {"command": "cat a.md"}, True),
        ("list_files", {}, False),
    ],
)
def test_a_task_is_a_case_that_any_of_its_right_calls_passes(
    program: Any, tool: str, arguments: dict[str, Any], right: bool
) -> None:
    case = program.make_case(
        {
            "request": "Show me a.md",
            "tool": "read_file",
            "arguments": {"path": {"any": ["a.md", "b.md"]}},
            "also": [{"tool": "run_command", "arguments": {"command": "cat a.md"}}],
        }
    )
    made = MadeCall(tool, arguments, outcome="not_found")
    facts = {"read_file": ToolFacts(paths=frozenset({"path"}))}
    problems = find_call_problems(case.expect.calls, [made], tools=facts)
    assert (problems == []) is right
    assert case.limits == {"max_turns": 1} and case.approve == ()


@pytest.mark.parametrize("name", ["tasks", "heldout"])
def test_every_task_of_the_files_is_a_case(program: Any, name: str) -> None:
    file = program.read_tasks(EVALS / f"{name}.yaml", 0)
    assert len(file.cases) == len({case.name for case in file.cases}) >= 30
    assert len(program.read_tasks(EVALS / f"{name}.yaml", 5).cases) == 5
