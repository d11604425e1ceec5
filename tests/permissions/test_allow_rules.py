"""Allow rules found by what they spell out: the same decisions, and none is compared in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rule_matching import AllowRules, RequiredAccess, RuleMatcher
from ferrule.permissions.rules import RuleSet
from ferrule.toolkits.commands.run_command_tool import run_command
from ferrule.toolkits.files.tools import read_file, write_file
from ferrule.tools.definition import Tool

WORDS = st.sampled_from(
    [
        *("git", "'git'", "git status", "git  push", "git:x", "/bin/git", "make", "sudo", "env"),
        *("FOO=1", "FOO='a b'", "-x", "a\\*b", "*", "x*", ":*", " *", "--version", "> out/f"),
        *("é", "a\u00a0b"),
    ]
)
COMMANDS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
SPECIFIERS = st.lists(WORDS, min_size=1, max_size=4).flatmap(
    lambda words: st.sampled_from([" ".join(words), "".join(words), f"{' '.join(words)}:*"])
)
PARTS = st.sampled_from(["src", "Src", "a", "*.py", "**", ".", "x.py", "!a", "#a", "a b", "~", ""])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
RULES = st.one_of(
    SPECIFIERS.map(lambda text: f"Bash({text})"),
    PATHS.map(lambda path: f"Read({path})"),
    PATHS.map(lambda path: f"Edit({path})"),
    st.sampled_from(["run_command", "Bash", "Read(//tmp/**)", "Edit(~/a/**)", "read_file(a)"]),
)
CALLS = st.one_of(
    COMMANDS.map(lambda text: (run_command, {"command": text})),
    PATHS.map(lambda path: (read_file, {"path": path})),
    PATHS.map(lambda path: (write_file, {"path": path, "content": ""})),
)


def decide(rules: list[str], granted: list[str], call: tuple[Tool, dict[str, Any]]) -> Any:
    gate = PermissionGate(RuleSet.parse(allow=rules), root=Path("/work"), home=Path("/home/me"))
    for rule in granted:
        gate.grant(rule)
    return gate.for_session().decide(*call), gate.decide(*call)


def is_rule(text: str) -> bool:
    try:
        RuleSet.parse(allow=[text])
    except Exception:
        return False
    return True


@given(
    st.lists(RULES.filter(is_rule), max_size=6), st.lists(RULES.filter(is_rule), max_size=3), CALLS
)
@example(["Bash(git:*:*)"], [], (run_command, {"command": "git:x"}))
@example(["Bash(git:*)", "Bash"], [], (run_command, {"command": "git status"}))
@example(["Bash(make > out/f)"], [], (run_command, {"command": "make > out/f"}))
@example(["Bash(a^b x)"], [], (run_command, {"command": '"a^b" x'}))
@example(["Bash('git' status)"], [], (run_command, {"command": "git status"}))
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_decisions_are_those_of_a_comparison_with_every_rule(
    rules: list[str], granted: list[str], call: tuple[Tool, dict[str, Any]]
) -> None:
    found = decide(rules, granted, call)

    def find_all(self: Any, need: RequiredAccess) -> list[RuleMatcher]:
        return list(self._matchers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AllowRules, "find", find_all)
        assert decide(rules, granted, call) == found


@pytest.mark.parametrize(
    ("call", "covering"),
    [
        ((run_command, {"command": "program7 -v"}), "Bash(program7:*)"),
        ((run_command, {"command": "other -v"}), ""),
        ((write_file, {"path": "folder7/a.py", "content": ""}), "Edit(folder7/**)"),
    ],
)
def test_a_call_is_compared_with_the_rules_that_could_cover_it(
    call: tuple[Tool, dict[str, Any]], covering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [f"Edit(folder{n}/**)" for n in range(500)]
    rules += [f"Bash(program{n}:*)" for n in range(500)]
    gate = PermissionGate(RuleSet.parse(allow=rules), root=Path("/work"))
    compared: list[str] = []
    covers = RuleMatcher.covers

    def count(self: RuleMatcher, *arguments: Any) -> bool:
        compared.append(self.rule.text)
        return covers(self, *arguments)

    monkeypatch.setattr(RuleMatcher, "covers", count)
    decision = gate.decide(*call)
    assert decision.rule == covering
    assert {text for text in compared if text in rules} <= {covering}
