"""Grants: this session's and remembered ones; and the people (or their absence) that give them."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.permissions.approvals import (
    AllowlistApprover,
    ApprovalAnswer,
    ApprovalRequest,
    DenyingApprover,
)
from ferrule.permissions.grants import Grants
from ferrule.permissions.rule_evaluation import GrantOffer, PermissionGate


@pytest.mark.proves("grants.remembered-in-next-process")
def test_a_remembered_grant_is_there_for_the_next_process(
    tmp_path: Path, tools: SimpleNamespace
) -> None:
    file = tmp_path / "state" / "grants.json"
    gate = PermissionGate(grants=Grants.load(file), root=tmp_path)
    offer = next(
        o for o in gate.decide(tools.run, {"command": "git diff"}).offers if o.choice == "remember"
    )
    gate.apply_answer(tools.run, "remember", offer.rule)
    later = PermissionGate(grants=Grants.load(file), root=tmp_path)
    assert later.decide(tools.run, {"command": "git diff"}).verdict == "allow"
    assert json.loads(file.read_text()) == [{"version": 1, "rule": offer.rule}]
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_a_session_grant_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "grants.json"
    grants = Grants.load(file)
    grants.grant("Bash(ls:*)")
    assert [rule.text for rule in grants.rules] == ["Bash(ls:*)"] and not file.exists()
    assert Grants.load(file).rules == ()


@pytest.mark.proves("grants.reader-tolerant")
def test_unknown_entries_are_skipped_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "grants.json"
    old = [
        {"scope": "read_files", "mode": "always_allow"},
        {"version": 9, "rule": "Bash"},
        7,
        {"version": 1, "rule": "Bash("},
    ]
    file.write_text(json.dumps(old))
    file.chmod(0o600)
    grants = Grants.load(file)
    assert grants.rules == () and len(grants.problems) == 4
    grants.remember("now")
    assert json.loads(file.read_text()) == [*old, {"version": 1, "rule": "now"}]
    assert grants.forget("now") and json.loads(file.read_text()) == old


def test_a_file_that_others_may_write_grants_nothing(tmp_path: Path) -> None:
    file = tmp_path / "grants.json"
    file.write_text('[{"version": 1, "rule": "Bash"}]')
    file.chmod(0o666)
    assert Grants.load(file).rules == () and "only its owner" in Grants.load(file).problems[0]
    file.chmod(0o600)
    assert [rule.text for rule in Grants.load(file).rules] == ["Bash"]


@pytest.mark.parametrize("content", ["", "{", "{}", "[" * 100_000])
def test_a_broken_file_grants_nothing_and_is_not_overwritten(tmp_path: Path, content: str) -> None:
    file = tmp_path / "grants.json"
    file.write_text(content)
    file.chmod(0o600)
    grants = Grants.load(file)
    assert grants.rules == () and grants.problems
    with pytest.raises(ConfigError):
        grants.remember("now")
    assert file.read_text() == content


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text('[{"version": 1, "rule": "Bash"}]')
    real.chmod(0o600)
    (tmp_path / "grants.json").symlink_to(real)
    assert Grants.load(tmp_path / "grants.json").rules == ()


def test_two_processes_do_not_lose_each_others_grants(tmp_path: Path) -> None:
    file = tmp_path / "grants.json"
    one, other = Grants.load(file), Grants.load(file)
    one.remember("a")
    other.remember("b")
    assert [rule.text for rule in Grants.load(file).rules] == ["a", "b"]
    assert [rule.text for rule in other.rules] == ["a", "b"]


def test_many_threads_can_remember_at_once(tmp_path: Path) -> None:
    file = tmp_path / "grants.json"
    grants = Grants.load(file)
    start = threading.Barrier(8)

    def remember(index: int) -> None:
        start.wait(10)
        grants.remember(f"tool_{index}")
        grants.grant(f"other_{index}")

    threads = [threading.Thread(target=remember, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(grants.rules) == 16 and len(Grants.load(file).rules) == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grants.json", "grants.json.lock"]


def test_wrong_rules_and_missing_folders_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="column"):
        Grants().grant("Bash(")
    with pytest.raises(ConfigError, match="no state folder"):
        Grants().remember("Bash")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be"):
        Grants(tmp_path / "file" / "grants.json").remember("Bash")
    assert not Grants().forget("never")


def request(tool: object, *offers: GrantOffer, risk: str = "high") -> ApprovalRequest:
    identity = Identity("t", "u", "s", "r")
    return ApprovalRequest(
        ToolCall("1", "write_file"), tool, risk, "it writes", (), "", offers, "d", identity
    )  # type: ignore[arg-type]


async def test_without_a_terminal_an_ask_is_a_no_said_out_loud(tools: SimpleNamespace) -> None:
    answer = await DenyingApprover().ask(
        request(tools.write, GrantOffer("once", ""), GrantOffer("session", "Edit(//w/a)"))
    )
    assert (answer.choice, answer.by) == ("deny", "no-terminal")
    assert (
        "no one was available" in answer.note
        and "it writes" in answer.note
        and "Edit(//w/a)" in answer.hint
    )
    # A model can do nothing with a rule.
    assert "Edit" not in answer.note and len(answer.note) < 4 * 40
    assert "person" in (await DenyingApprover().ask(request(tools.write))).hint
    # What a question of critical risk offers is no rule that could be written down.
    question = request(tools.write, GrantOffer("session", "writing in `/a`"), risk="critical")
    assert "the rule" not in (await DenyingApprover().ask(question)).hint


async def test_yes_to_answers_for_named_tools_only_and_never_for_critical(
    tools: SimpleNamespace,
) -> None:
    approver = AllowlistApprover(["write_*"])
    assert await approver.ask(request(tools.write)) == ApprovalAnswer("once", by="--yes-to write_*")
    assert (await approver.ask(request(tools.read))).choice == "deny"
    assert (await approver.ask(request(tools.write, risk="critical"))).choice == "deny"
    for wrong in ("Bash(ls)", "Edit", "("):
        with pytest.raises(ConfigError):
            AllowlistApprover([wrong])


def test_root_is_not_needed_to_refuse_foreign_files(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    file = tmp_path / "grants.json"
    file.write_text('[{"version": 1, "rule": "Bash"}]')
    os.chown(file, 12345, 12345)
    assert Grants.load(file).rules == ()
