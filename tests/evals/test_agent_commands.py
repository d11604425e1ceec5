"""Commands as agents write them, after one approval of the folder: all by the gate, some for real."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from agent_commands.gate import decide, load_commands, make_gate
from agent_commands.trial import run_commands

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.backends.selection import choose_backend
from ferrule.sandbox.policy import SandboxPolicy

ROWS = load_commands()
RUN = (
    "find . -name '*.py' -print0 | xargs -0 wc -l | sort -n | tail -5",
    "cat ../README.md",
    "cd src && cat ../README.md",
    "for f in src/*.py; do wc -l $f; done",
    "echo hello > /tmp/x && cat /tmp/x",
    "rm -rf build",
    "vim README.md",
    "cat .env",
)


def test_the_table_has_commands_of_every_kind() -> None:
    assert len({(row.command, row.cwd) for row in ROWS}) == len(ROWS) >= 200
    assert {row.expect for row in ROWS} == {"runs", "asks", "host", "refused"}
    assert all(row.why for row in ROWS if row.expect in ("asks", "refused"))


def test_after_one_approval_the_gate_decides_as_a_person_expects() -> None:
    gate = make_gate(Path("/work/project"), Path("/home/person"))
    wrong: list[str] = []
    for row in ROWS:
        decided, reason = decide(gate, row)
        expected = "runs" if row.expect == "host" or row.by == "tool" else row.expect
        if decided != expected and not row.known:
            wrong.append(f"{row.command!r}: {expected}, but {decided}: {reason}")
    assert not wrong, "\n".join(wrong)


async def test_some_of_them_become_at_a_terminal_what_a_person_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        backend = choose_backend(SandboxPolicy(tmp_path), probe()).name
    except MissingProtections:
        pytest.skip("this machine cannot hold commands as required")
    if backend == "landlock":
        pytest.skip("Landlock alone gives commands no `/tmp` of their own")
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"FERRULE_{name}", "")  # taken back after the test
    rows = [row for row in ROWS if row.command in RUN]
    assert len(rows) == len(RUN) and shutil.which("git")
    outcomes = [outcome async for outcome in run_commands(rows, tmp_path)]
    assert [
        (each.row.command, each.kind, each.said) for each in outcomes if not each.is_expected
    ] == []
