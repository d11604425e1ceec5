"""The evaluation is honest: its tasks fit the tools, and no prompt or example holds one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from ferrule.toolkits import clock, commands, tasks
from ferrule.toolkits.examples import EXAMPLES, examples_for
from ferrule.toolkits.files import browse, tools
from ferrule.toolkits.git import git_command
from ferrule.toolkits.search import search_files
from ferrule_local.small_models.argument_filling import INVENTED
from ferrule_local.small_models.tool_choice import EVERYDAY_REQUESTS, SMALL_TALK, request_prompt

EVALS = Path(__file__).parents[2] / "evals"
TOOLS = {
    t.name: t
    for kit in (browse, clock, tools, git_command, search_files, commands, tasks)
    for t in kit.TOOLS
}


def load(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((EVALS / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", ["tasks", "heldout"])
def test_every_expected_call_is_one_the_tool_takes(name: str) -> None:
    for task in load(name):
        for call in (task, *task.get("also", ())):
            arguments = {
                k: v["any"][0] if isinstance(v, dict) and "any" in v else v
                for k, v in call["arguments"].items()
            }
            schema = json.loads(TOOLS[call["tool"]].schema_json())
            assert jsonschema_rs.validator_for(schema).is_valid(arguments), task["request"]


def test_there_are_enough_tasks_and_every_built_in_tool_has_one() -> None:
    wanted = load("tasks")
    assert len(wanted) >= 60
    assert len(load("heldout")) >= 30
    assert {task["tool"] for task in wanted} >= set(EXAMPLES)


def test_no_task_stands_in_a_prompt_or_an_example_whatever_its_names() -> None:
    shown = {request_prompt(request) for examples in EXAMPLES.values() for request, _ in examples}
    shown |= {
        request_prompt(request)
        for request in (*EVERYDAY_REQUESTS, *SMALL_TALK, *(r for _, r, _ in INVENTED))
    }
    seen = [
        t["request"]
        for name in ("tasks", "heldout")
        for t in load(name)
        if request_prompt(t["request"]) in shown
    ]
    assert seen == []


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_is_a_call_the_tool_takes(name: str) -> None:
    schema = json.loads(TOOLS[name].schema_json())
    for example in examples_for(name):
        assert jsonschema_rs.validator_for(schema).is_valid(example["arguments"]), example[
            "request"
        ]
