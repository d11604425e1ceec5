"""Rules about commands bind the tools that amount to those commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.toolkits.git.git_command import TOOLS
from ferrule.toolkits.git.tools import git_toolbox_tools, git_tools

BY_NAME = {
    made.full_name: made
    for made in (
        *TOOLS,
        *git_tools(),
        *git_tools(enabled_tools=["mutation"]),
        *git_toolbox_tools(include_mutations=True),
    )
}


def decide(rules: RuleSet, name: str, **values: Any) -> str:
    gate = PermissionGate(rules, mode="bypassPermissions", root=Path("/work/shop"))
    return gate.decide(BY_NAME[name], values).verdict


@pytest.mark.parametrize(
    ("rule", "name", "values"),
    [
        ("Bash(git push:*)", "git_push", {}),
        ("Bash(git push:*)", "git_push", {"remote": "origin", "branch": "main"}),
        ("Bash(git push origin main)", "git_push", {"remote": "origin", "branch": "main"}),
        ("Bash(git pull:*)", "git_pull_ff_only", {}),
        ("Bash(git commit:*)", "git_commit", {"message": "x"}),
        ("Bash(git push:*)", "run_git_tool", {"operation": "push"}),
        ("Bash(git push:*)", "run_git_tool", {"operation": "git_push", "remote": "origin"}),
        ("Bash(git log:*)", "git_command", {"subcommand": "log", "args": ["-1"]}),
        ("Bash(git:*)", "git_status", {}),
    ],
)
def test_a_rule_about_a_git_command_binds_its_tool(
    rule: str, name: str, values: dict[str, Any]
) -> None:
    assert decide(RuleSet.parse(deny=[rule]), name, **values) == "deny"
    assert decide(RuleSet.parse(ask=[rule]), name, **values) == "ask"


def test_other_operations_are_not_bound_and_each_call_is_judged_by_its_own_arguments() -> None:
    rules = RuleSet.parse(deny=["Bash(git push:*)"])
    gate = PermissionGate(rules, mode="bypassPermissions", root=Path("/work/shop"))
    runner = BY_NAME["run_git_tool"]
    assert gate.decide(runner, {"operation": "status"}).verdict == "allow"
    assert gate.decide(runner, {"operation": "push"}).verdict == "deny"
    assert gate.decide(runner, {"operation": "fetch"}).verdict == "allow"
    assert gate.decide(BY_NAME["git_fetch"], {}).verdict == "allow"


def test_an_allow_rule_about_the_command_does_not_allow_the_tool() -> None:
    gate = PermissionGate(RuleSet.parse(allow=["Bash(git push:*)"]), root=Path("/work/shop"))
    assert gate.decide(BY_NAME["git_push"], {}).verdict == "ask"
