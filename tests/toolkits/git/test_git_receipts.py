"""Receipts of operations of git that failed, and what receipts say of branches."""

from __future__ import annotations

from typing import Any

import git_calls
import pytest

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.git import run
from ferrule.toolkits.git.run import open_git
from ferrule.toolkits.git.tools import git_toolbox_tools


def failed(world: Any, name: str, **arguments: Any) -> tuple[ToolResult, dict[str, Any]]:
    """A call that does not work, and its receipt."""
    result = world.ask(name, **arguments)
    assert not result.success
    assert result.data["operation"] == name.removeprefix("git_")
    return result, result.data["receipt"]


def test_a_conflict_has_a_receipt_that_says_that_nothing_moved(world: Any) -> None:
    world.git("switch", "-q", "-c", "topic")
    mine = world.commit("mine", **{"a.txt": "mine\n"})
    world.git("switch", "-q", "main")
    world.commit("theirs", **{"a.txt": "theirs\n"})
    world.git("switch", "-q", "topic")
    result, receipt = failed(world, "git_rebase", onto="main")
    assert result.error_type is ErrorType.IO_ERROR
    assert (receipt["schema"], receipt["operation"]) == ("ferrule.git_receipt.v1", "rebase")
    assert (receipt["status"], receipt["exit_category"]) == ("failed", "conflict")
    assert receipt["argv"][0] == "git" and receipt["receipt_id"].startswith("git_")
    assert receipt["refs"] == {"before": {"HEAD": mine}, "after": {"HEAD": mine}}
    assert (receipt["agent"], receipt["trace_id"], receipt["call_id"]) == ("agent", "run_1", "c1")
    assert receipt["approval"]["needed"] and receipt["policy"]["side_effect"] == "execute"
    # The model reads it with the error.
    assert '"exit_category":"conflict"' in result.to_text()


def test_what_git_refuses_what_we_refuse_and_what_is_not_there_are_told_apart(world: Any) -> None:
    head = world.git("rev-parse", "HEAD")
    world.git("branch", "other", "HEAD~1")
    world.write("a.txt", "local\n")
    _, receipt = failed(world, "git_switch", branch="other")
    assert (receipt["exit_category"], receipt["exit_code"]) == ("failed", 1)
    assert "switch" in receipt["argv"] and receipt["refs"]["after"] == {"HEAD": head}

    _, receipt = failed(world, "git_switch", branch="nowhere")
    assert receipt["exit_category"] == "not_found"

    world.write(".gitattributes", "*.txt filter=evil\n")
    _, receipt = failed(world, "git_add", all=True)
    assert receipt["exit_category"] == "refused" and receipt["refs"]["after"] == {"HEAD": head}

    world.write(".git/index.lock", "")
    world.write(".gitattributes", "")
    _, receipt = failed(world, "git_commit", message="x", all=True)
    assert (receipt["exit_category"], receipt["exit_code"]) == ("failed", 128)
    assert receipt["refs"]["after"] == {"HEAD": head}


def test_a_read_that_fails_has_a_receipt_without_branches(world: Any) -> None:
    _, receipt = failed(world, "git_show", rev="nowhere")
    assert (receipt["status"], receipt["exit_category"]) == ("failed", "not_found")
    assert "refs" not in receipt and receipt["autonomy_tier"] == "observe"


def test_arguments_that_make_no_sense_attempt_nothing(world: Any) -> None:
    result = world.ask("git_switch", branch="x", create=True, force_create=True)
    assert result.error_type is ErrorType.VALIDATION_FAILED and result.data is None


def test_the_toolbox_has_the_same_receipts(world: Any) -> None:
    world.tools = git_toolbox_tools(include_mutations=True)
    result = world.ask("run_git_tool", operation="switch", branch="nowhere")
    assert not result.success
    assert result.data["receipt"]["operation"] == "switch"


def test_a_failed_fetch_shows_no_password_in_its_receipt(world: Any) -> None:
    world.git("remote", "add", "origin", "https://me:hunter2@127.0.0.1:1/x.git")
    result, receipt = failed(world, "git_fetch")
    assert receipt["exit_category"] == "failed"
    assert "hunter2" not in result.to_text()


def test_a_receipt_says_which_branches_moved(world: Any) -> None:
    before = world.git("rev-parse", "HEAD")
    world.write("a.txt", "changed\n")
    world.do("git_add", all=True)
    answer = world.do("git_commit", message="Change a")
    assert answer["receipt"]["refs"] == {
        "before": {"HEAD": before, "refs/heads/main": before},
        "after": {"HEAD": answer["commit"], "refs/heads/main": answer["commit"]},
    }
    answer = world.do("git_switch", branch="new", create=True)
    assert answer["receipt"]["refs"]["before"]["refs/heads/new"] is None
    assert "refs" not in world.do("git_log")["receipt"]


def test_packed_and_loose_references_are_read_alike_and_bounded(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.git("branch", "packed")
    world.git("pack-refs", "--all")
    newer = world.commit("newer", **{"a.txt": "x\n"})
    world.git("update-ref", "refs/heads/packed", newer)
    (world.root / ".git/refs/heads/odd").write_text("nonsense\n")

    async def read() -> dict[str, str]:
        context = git_calls.make_context(Workspace(world.root))
        async with open_git(context) as git:
            return await git.read_references()

    def found() -> dict[str, str]:
        return git_calls.run(read())

    assert found() == {"HEAD": newer, "refs/heads/main": newer, "refs/heads/packed": newer}
    monkeypatch.setattr(run, "MAX_REFERENCES", 1)
    assert found() == {"HEAD": newer, "refs/heads/main": newer}
    world.git("symbolic-ref", "HEAD", "refs/heads/unborn")
    assert found()["HEAD"] == "ref: refs/heads/unborn"
