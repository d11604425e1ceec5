"""git tools in linked worktrees and submodules, and hooks of `git_commit`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "attacks"))

from planted.git_layouts import LAYOUTS, PREPARE, Layout

from ferrule.core.calls import ErrorType
from ferrule.sandbox.backends.probes import probe


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


@pytest.mark.proves("sandbox.git.layouts")
@pytest.mark.parametrize(
    "layout", [one for one in LAYOUTS if one.git_tools], ids=lambda layout: layout.name
)
def test_git_tools_work_in_worktrees_and_submodules(world: Any, base: Path, layout: Layout) -> None:
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
    assert not list((base / layout.common).rglob("ferrule-*"))
    assert world.git("fsck", "--no-dangling") == ""


@pytest.mark.proves("sandbox.git.layouts")
def test_a_branch_that_another_worktree_has_is_not_taken(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "worktree_beside")
    world = make(world, base, layout)
    refused = world.ask("git_switch", branch="main")
    assert not refused.success and "main" in refused.error_message


@pytest.mark.proves("sandbox.git.layouts")
def test_git_tools_say_that_a_subfolder_is_for_commands(world: Any, base: Path) -> None:
    layout = next(one for one in LAYOUTS if one.name == "subfolder")
    refused = make(world, base, layout).ask("git_status")
    assert refused.error_type is ErrorType.NOT_FOUND and "`run_command`" in refused.error_message


def write_hook(base: Path, layout: Layout, name: str, text: str) -> None:
    hook = base / layout.common / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{text}\n")
    hook.chmod(0o755)


@pytest.mark.proves("sandbox.git.hooks")
@pytest.mark.parametrize("name", ["plain", "worktree_beside", "submodule"])
def test_hooks_of_a_commit_run_confined_and_are_named(world: Any, base: Path, name: str) -> None:
    if not probe().namespaces:
        pytest.skip("no namespaces: hooks of the tools run in no sandbox here")
    layout = next(one for one in LAYOUTS if one.name == name)
    world = make(world, base, layout)
    (base / "outside").mkdir()
    write_hook(base, layout, "pre-commit", f"touch {base}/outside/ran; touch ran; exit 0")
    write_hook(base, layout, "commit-msg", 'echo "Signed: hook" >> "$1"')
    world.write("new.txt", "new\n")
    world.do("git_add", paths=["new.txt"])
    made = world.do("git_commit", message="two")
    assert made["hooks_run"] == ["pre-commit", "commit-msg"]
    assert (world.root / "ran").exists() and not (base / "outside/ran").exists()
    assert world.git("log", "-1", "--format=%B").endswith("Signed: hook")


@pytest.mark.proves("sandbox.git.hooks")
def test_a_hook_that_refuses_keeps_the_commit_from_being_made(world: Any, base: Path) -> None:
    if not probe().namespaces:
        pytest.skip("no namespaces: hooks of the tools run in no sandbox here")
    layout = next(one for one in LAYOUTS if one.name == "plain")
    world = make(world, base, layout)
    write_hook(base, layout, "pre-commit", "echo not like this; exit 3")
    before = world.git("rev-parse", "HEAD")
    world.write("new.txt", "new\n")
    world.do("git_add", paths=["new.txt"])
    refused = world.ask("git_commit", message="two")
    assert "`pre-commit`" in refused.error_message and "not like this" in refused.error_message
    assert world.git("rev-parse", "HEAD") == before
