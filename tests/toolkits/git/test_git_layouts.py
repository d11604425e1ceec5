"""git tools in linked worktrees and submodules, and hooks of `git_commit`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import git_calls
import pytest

sys.path.append(str(Path(__file__).parents[2] / "attacks"))

from planted.git_layouts import LAYOUTS, PREPARE, Layout

from ferrule.core.calls import ErrorType
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.commands.policy import CommandPolicy
from ferrule.toolkits.git.run import find_git


def make(world: Any, base: Path, layout: Layout) -> Any:
    """The world of these tests, in a layout."""
    subprocess.run(
        ["bash", "-c", f"{PREPARE}{layout.script}; make other"],
        cwd=base,
        check=True,
        capture_output=True,
    )
    return type(world)(base / layout.workspace)


@pytest.fixture
def base() -> Iterator[Path]:
    # Not below /tmp: that is a folder of its own inside a sandbox.
    made = Path(tempfile.mkdtemp(prefix="ferrule-git-", dir=Path.home())).resolve()
    yield made
    shutil.rmtree(made)


@pytest.fixture(autouse=True)
def person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "person").mkdir()
    (tmp_path / "person/.gitconfig").write_text("[user]\n\tname = p\n\temail = p@example.org\n")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_git_tools_work_where_people_work(world: Any, base: Path, layout: Layout) -> None:
    world = make(world, base, layout)
    assert world.do("git_status")["clean"] is True
    branch = world.do("git_current_branch")["branch"]
    world.write("new.txt", "new\n")
    assert world.do("git_add", all=True)["staged"] == ["new.txt"]
    made = world.do("git_commit", message="two")
    assert world.git("rev-parse", "HEAD") == made["commit"]
    assert world.git("status", "--short") == ""
    assert "two" in world.git("reflog", "-1")
    assert "two" in str(world.do("git_log"))
    world.write("new.txt", "newer\n")
    assert "newer" in str(world.do("git_diff"))
    world.git("checkout", "-q", "new.txt")
    world.do("git_switch", branch="r1", create=True)
    world.commit("r1", r="r")
    world.do("git_switch", branch=branch)
    world.commit("s1", s="s")
    world.do("git_switch", branch="r1")
    world.do("git_rebase", onto=branch)
    assert world.git("log", "--format=%s", "-2") == "r1\ns1"
    assert world.git("symbolic-ref", "--short", "HEAD") == "r1"
    world.write("new.txt", "put away\n")
    assert world.do("git_stash", action="push")["changed_files"] == ["new.txt"]
    assert world.do("git_status")["clean"] is True
    assert world.do("git_stash", action="pop")["changed_files"] == ["new.txt"]
    assert (world.root / "new.txt").read_text() == "put away\n"
    assert not list((base / layout.common).rglob("ferrule-*"))
    assert world.git("fsck", "--no-dangling") == ""


def test_a_branch_that_another_worktree_has_is_not_taken(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "worktree_beside")
    world = make(world, base, layout)
    refused = world.ask("git_switch", branch="main")
    assert not refused.success and "main" in refused.error_message


def test_what_lies_beside_a_subfolder_is_left_to_the_person(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "subfolder")
    world = make(world, base, layout)
    world.git("switch", "-q", "-c", "wide")
    (base / "main/beside/s.txt").write_text("changed\n")
    world.git("commit", "-q", "-a", "-m", "beside")
    error, said = world.refused("git_switch", branch="main")
    assert error is ErrorType.PERMISSION_DENIED and "`beside/s.txt`" in said
    assert world.git("symbolic-ref", "--short", "HEAD") == "wide"


def write_hook(base: Path, layout: Layout, name: str, text: str) -> None:
    hook = base / layout.common / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{text}\n")
    hook.chmod(0o755)


@pytest.mark.parametrize("name", ["plain", "worktree_beside", "submodule"])
def test_hooks_of_a_commit_run_confined_and_are_named(world: Any, base: Path, name: str) -> None:
    layout = next(one for one in LAYOUTS if one.name == name)
    world = make(world, base, layout)
    (base / "outside").mkdir()
    write_hook(base, layout, "pre-commit", f"touch '{base}/outside/ran'; touch ran; exit 0")
    write_hook(base, layout, "commit-msg", 'echo "Signed: hook" >> "$1"')
    world.write("new.txt", "new\n")
    world.do("git_add", paths=["new.txt"])
    made = world.do("git_commit", message="two")
    assert made["hooks_run"] == ["pre-commit", "commit-msg"]
    assert (world.root / "ran").exists() and not (base / "outside/ran").exists()
    assert world.git("log", "-1", "--format=%B").endswith("Signed: hook")


def test_a_hook_that_refuses_keeps_the_commit_from_being_made(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "plain")
    world = make(world, base, layout)
    write_hook(base, layout, "pre-commit", "echo not like this; exit 3")
    before = world.git("rev-parse", "HEAD")
    world.write("new.txt", "new\n")
    world.do("git_add", paths=["new.txt"])
    refused = world.ask("git_commit", message="two")
    assert "`pre-commit`" in refused.error_message and "not like this" in refused.error_message
    assert world.git("rev-parse", "HEAD") == before


def test_hooks_that_were_switched_off_are_named(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "plain")
    world = make(world, base, layout)
    write_hook(base, layout, "pre-commit", "exit 3")
    policy = SandboxPolicy(world.root, git_hooks=False)
    world.resources = {CommandPolicy: CommandPolicy(confine=policy)}
    world.write("new.txt", "new\n")
    world.do("git_add", paths=["new.txt"])
    assert world.do("git_commit", message="two")["hooks_not_run"] == ["pre-commit"]


def test_another_git_at_work_is_an_error_that_can_be_tried_again(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "worktree_beside")
    world = make(world, base, layout)
    world.git("branch", "old")
    world.commit("more", m="m")
    world.write("new.txt", "new\n")
    lock = base / layout.git_dir / "index.lock"
    lock.touch()
    for name, arguments in (
        ("git_add", {"all": True}),
        ("git_commit", {"message": "x", "allow_empty": True}),
        ("git_switch", {"branch": "old"}),
    ):
        refused = world.ask(name, **arguments)
        assert refused.error_type is ErrorType.IO_ERROR, name
        assert "`index.lock` is there" in refused.error_message
        assert str(lock) in refused.error_message
    lock.unlink()
    assert world.do("git_add", all=True)["staged"] == ["new.txt"]


def test_agents_in_worktrees_of_one_repository_commit_at_once(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "worktree_beside")
    side = make(world, base, layout)
    main = type(side)(base / "main")
    same = type(side)(base / "main")
    same.session = "another"
    before = {one.git("rev-parse", "HEAD") for one in (side, main)}

    async def commit(one: Any, text: str) -> Any:
        return await one.answer("git_commit", message=text, allow_empty=True)

    async def commit_at_once() -> list[Any]:
        agents = (side, main, same)
        work = [commit(one, f"{at} {turn}") for turn in range(3) for at, one in enumerate(agents)]
        return await asyncio.gather(*work)

    ended = git_calls.run(commit_at_once())
    made = [one.data["commit"] for one in ended if one.success]
    for one in ended:
        assert one.success or "try again" in one.error_message, one.error_message
    assert len(made) >= 2
    known = {line for one in (side, main) for line in one.git("log", "--format=%H").splitlines()}
    assert before <= known and len(known - before) == len(made)
    assert main.git("fsck", "--no-dangling") == ""


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_program_in_the_repository_is_one_that_commands_can_write(
    world: Any, base: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(world, base, layout)
    planted = base / layout.common / "bin/git"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    assert SandboxPolicy(world.root).command_writable.contains(str(planted))
    monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}")
    found = find_git(git_calls.make_context(Workspace(world.root)))
    assert found.real != str(planted)
