"""Ordinary commands are decided as a person expects, each for the reason that the person would
give.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ordinary_commands import DENIED, ORDINARY, RULES, Ordinary

from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.rule_evaluation import Decision, PermissionGate


def expected(row: Ordinary, decision: Decision) -> bool:
    said = decision.rule if row.expect == "allow" else decision.reason
    return decision.verdict == row.expect and row.says in said


def test_each_is_decided_as_a_person_expects(
    gate: Callable[..., PermissionGate], tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = {
        mode: gate(allow=RULES, deny=DENIED, mode=mode) for mode in {row.mode for row in ORDINARY}
    }
    wrong: list[str] = []
    for row in ORDINARY:
        decision = gates[row.mode].decide(tools.run, {"command": row.command})
        if not expected(row, decision):
            wrong.append(f"{row.command} ({row.mode}): {row.expect} {row.says}, but {decision}")
    with capsys.disabled():
        print(
            f"\nordinary commands decided as expected: {len(ORDINARY) - len(wrong)} / "
            f"{len(ORDINARY)}"
        )
    assert not wrong, "\n".join(wrong)


def test_the_table_is_large_and_each_row_is_there_once() -> None:
    assert len(ORDINARY) >= 150
    assert len({(row.command, row.mode) for row in ORDINARY}) == len(ORDINARY)
    assert {row.expect for row in ORDINARY} == {"allow", "ask", "deny"}
    assert all(row.why and (row.says or row.mode == "bypassPermissions") for row in ORDINARY)


@pytest.mark.parametrize(
    "command",
    [
        "cd a && cat ../x",
        "cd a && cat b && cd .. && cat x",
        "(cd a && cat ../x) && cat x",
        "cd a && cd b && cat ../../x",
        "cat x || cat y; cd a && cat ../x",
        'echo "$(cd a && cat ../x)"; cat x',
        "cd a\ncat x",
    ],
)
def test_a_cd_that_surely_worked_is_followed(command: str) -> None:
    assert not analyse_command(command, root="/work/project", home="/home/person").findings


@pytest.mark.parametrize(
    "command",
    [
        "cd a; cat ../x",
        "cd a || cat ../x",
        "! cd a && cat ../x",
        "cd a | cat ../x",
        "cd a & cat ../x",
        "(cd a); cat ../x",
        "(cd a) && cat ../x",
        "cd a && (cd ..; cat ../x)",
        "if cd a; then cat b; fi; cat ../x",
        "for d in 1 2; do cat ../x; cd a; done",
        "f() { cat ../x; }; cd a && f && cd .. && f",
        "trap 'cat ../x' EXIT; cd a && cd ..",
        "CDPATH=b cd a && cat ../x && cat ../../x",
        "timeout 5 cd a && cat ../x",
        "cat b && cd a; cat ../x",
        "cd a && cat b || cat ../../x",
        "eval 'cd a' && cat ../x",
        "bash -c 'cd a' && cat ../x",
        "pushd a && popd && cat ../x",
        "cd a && alias cd=true && cd b && cat ../../x",
        "cat ../x && cd a",
        "cd a && cat ../../x",
        "cd ./.. && ls",
    ],
)
def test_where_a_cd_may_have_failed_what_lies_outside_is_never_allowed(
    command: str, gate: Callable[..., PermissionGate], tools: SimpleNamespace
) -> None:
    decision = gate(allow=["Bash"]).decide(tools.run, {"command": command})
    assert decision.verdict != "allow", command
    assert "outside the workspace" in decision.reason or "known only" in decision.reason, (
        decision.reason
    )


def test_a_protected_name_is_seen_from_every_folder_it_could_be_named_in() -> None:
    for command in (
        "cd .ferrule; cat x",
        "cd a; cd ../.ferrule; cat x",
        "cd .ferrule <<E && cat x\nE",
    ):
        assert analyse_command(command, root="/work/project", home="/home/person").findings, command


def test_the_name_that_leaves_the_workspace_is_the_one_that_is_told() -> None:
    for command in ("cd docs && cd ../..", "cd docs; cd ../..; ls"):
        findings = analyse_command(command, root="/work/project", home="/home/person").findings
        assert all("`../..`" in finding.why for finding in findings) and findings


def test_text_of_a_program_that_may_be_another_is_a_path_all_the_same() -> None:
    for command in (
        "tr() { cat $1; }; tr /etc/passwd x",
        "alias tr=cat; tr /etc/passwd",
        "./tr /etc/passwd x",
    ):
        assert analyse_command(command, root="/work/project", home="/home/person").findings, command


def test_what_an_option_or_an_expansion_leaves_open_may_be_a_path() -> None:
    for command in (
        "cut --unheard -d /etc/passwd",
        "grep --unheard x /etc/passwd",
        "grep -f a /etc/passwd",
        "grep $OPTIONS /etc/passwd",
        "sort -t x /etc/passwd",
        "cut -d x -- /etc/passwd",
        "git log --grep x -- /etc/passwd",
        "git log -O /etc/passwd",
        "grep -e x /etc/passwd",
        "sed --file=a /etc/passwd",
        "jq -f a.jq /etc/passwd",
        "jq --slurpfile x /etc/passwd .",
        "diff --label x /etc/passwd b",
        "man /etc/passwd",
        "ag -g x /etc",
        "rg --files /etc",
        "docker compose -f /etc/passwd ps",
        "curl -s -H @/etc/passwd https://example.com",
    ):
        assert analyse_command(command, root="/work/project", home="/home/person").findings, command
