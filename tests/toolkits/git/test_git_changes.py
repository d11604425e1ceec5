"""Operations of git that change something: what they do to real repositories, and what they must
never do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import git_calls
import pytest
from linked_repositories import git

from ferrule.core.calls import ErrorType
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.git.tools import git_tools

SECRETS = (
    ".env",
    "sub/prod.env",
    "k.pem",
    "id_rsa.bak",
    "agents/notes.md",
    ".ferrule/x",
    ".ENV.local",
    ".ssh/config",
)


def tracked(world: Any) -> list[str]:
    return world.git("ls-files").splitlines()


def sound(world: Any) -> None:
    """The repository is whole, and nothing of ours is left in it."""
    assert world.git("fsck", "--strict", "--no-dangling") == ""
    left = [path.name for path in (world.root / ".git").rglob("*.lock")]
    assert left == []
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("ferrule-git-*/index.lock"))


# ---- add


def test_files_are_staged_and_the_index_is_gits_own(world: Any) -> None:
    world.write("a.txt", "changed\n")
    world.write("new/x.txt", "x\n")
    (world.root / "b.txt").unlink()
    assert world.do("git_add", paths=["new"])["staged"] == ["new/x.txt"]
    assert world.git("status", "--short") == "M a.txt\n D b.txt\nA  new/x.txt"
    answer = world.do("git_add", all=True)
    assert answer["staged"] == ["a.txt", "b.txt"]
    assert answer["receipt"]["affected_paths"] == ["a.txt", "b.txt"]
    assert world.git("status", "--short") == "M  a.txt\nD  b.txt\nA  new/x.txt"
    assert world.do("git_add", all=True)["receipt"]["exit_category"] == "nothing_to_do"
    sound(world)


def test_a_change_in_the_moment_of_the_last_staging_is_not_missed(world: Any) -> None:
    # Git takes a file whose size and times are those in the index for unchanged, unless they are
    # as young as the index itself.
    world.git("config", "core.trustctime", "false")
    moment = (1_700_000_000_000_000_000, 1_700_000_000_000_000_000)
    world.write("a.txt", "first\n")
    os.utime(world.root / "a.txt", ns=moment)
    world.git("add", "a.txt")
    os.utime(world.root / ".git/index", ns=moment)
    world.write("a.txt", "other\n")
    os.utime(world.root / "a.txt", ns=moment)
    assert world.do("git_add", paths=["a.txt"])["staged"] == ["a.txt"]
    assert world.git("show", ":a.txt") == "other"


def test_staging_everything_leaves_out_what_may_not_be_read(world: Any) -> None:
    for name in SECRETS:
        world.write(name, "hunter2\n")
    world.write("fine.txt", "fine\n")
    answer = world.do("git_add", all=True)
    assert answer["staged"] == ["fine.txt"]
    assert len(answer["left_out"]) >= 5  # Folders that are off limits look empty.
    assert tracked(world) == ["a.txt", "b.txt", "fine.txt"]
    # Not even as an object that nothing refers to.
    objects = world.git(
        "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"
    ).splitlines()
    assert all(
        "hunter2" not in world.git("cat-file", "blob", row.split()[0])
        for row in objects
        if row.endswith("blob")
    )
    sound(world)


@pytest.mark.parametrize(
    "name", [*SECRETS, "sub/../.env", "./.env", ".git/config", "../x", "/etc/passwd"]
)
def test_naming_a_secret_to_stage_is_refused(world: Any, name: str) -> None:
    for secret in SECRETS:
        world.write(secret, "hunter2\n")
    assert world.refused("git_add", paths=[name])[0] is ErrorType.PERMISSION_DENIED
    assert tracked(world) == ["a.txt", "b.txt"]


def test_a_tracked_secret_that_changed_is_not_staged_again(world: Any) -> None:
    world.commit("with a secret", **{".env": "hunter1\n"})
    world.write(".env", "hunter2\n")
    assert world.do("git_add", all=True)["staged"] == []
    assert world.refused("git_commit", message="x", all=True)[0] is ErrorType.PERMISSION_DENIED


def test_a_deny_rule_keeps_a_file_out_as_the_lists_do(world: Any) -> None:
    from ferrule.permissions.protected_names import DEFAULT_NAMES

    world.names = DEFAULT_NAMES.extend(secret=("private",))
    world.write("private/x.txt", "hunter2\n")
    assert world.do("git_add", all=True)["staged"] == []


def test_links_and_hard_links_carry_nothing_from_outside_into_the_history(
    world: Any, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("hunter2\n")
    os.link(outside, world.root / "hard.txt")
    (world.root / "soft.txt").symlink_to(outside)
    answer = world.do("git_add", all=True)
    assert answer["staged"] == ["soft.txt"]
    assert "hard.txt" in answer["left_out"][0]
    assert "hunter2" not in world.git("show", ":soft.txt")


def test_names_that_look_like_options_or_patterns_are_only_names(world: Any) -> None:
    for name in ("-A", "--all", "*.txt", ":(top)x", ":/", "a b", "ü.txt", 'q"uote', "tab\tx"):
        (world.root / name).write_text("x\n")
    world.write("a.txt", "changed\n")
    answer = world.do("git_add", paths=["-A", "*.txt", "ü.txt"])
    assert answer["staged"] == ["*.txt", "-A", "ü.txt"]
    answer = world.do("git_add", all=True)
    assert answer["count"] == 6
    assert "control character" in answer["left_out"][0]
    sound(world)


def test_a_missing_file_and_a_repository_inside_are_said(world: Any) -> None:
    assert world.refused("git_add", paths=["nothing.txt"])[0] is ErrorType.NOT_FOUND
    shutil.copytree(world.root / ".git", world.root / "inner/.git")
    world.write("inner/x.txt", "x\n")
    answer = world.do("git_add", all=True)
    assert answer["staged"] == []
    assert "repository of its own" in answer["left_out"][0]


def test_ignored_files_are_not_staged(world: Any) -> None:
    world.write(".gitignore", "*.log\n")
    world.write("x.log", "x\n")
    assert world.do("git_add", all=True)["staged"] == [".gitignore"]


# ---- commit


def test_a_commit_is_the_persons_and_holds_what_was_staged(world: Any) -> None:
    world.write("a.txt", "changed\n")
    world.write("other.txt", "x\n")
    world.do("git_add", paths=["a.txt"])
    answer = world.do("git_commit", message="Change a\n\n# not a comment\nbody")
    assert (
        world.git("log", "-1", "--format=%an <%ae>|%cn|%B")
        == "Person Example <person@example.org>|Person Example|Change a\n\n# not a comment\nbody"
    )
    assert answer["commit"] == world.git("rev-parse", "main")
    assert answer["files"] == ["a.txt"]
    assert world.git("status", "--short") == "?? other.txt"
    assert "commit: Change a" in world.git("reflog", "-1")
    sound(world)


def test_tracked_changes_are_committed_with_all_and_nothing_staged_is_an_error(world: Any) -> None:
    assert world.refused("git_commit", message="x")[0] is ErrorType.IO_ERROR
    world.write("a.txt", "changed\n")
    world.write("new.txt", "x\n")
    assert world.do("git_commit", message="all", all=True)["files"] == ["a.txt"]
    assert world.do("git_commit", message="empty", allow_empty=True)["files"] == []
    assert world.git("rev-list", "--count", "HEAD") == "5"


def test_the_first_commit_and_one_on_no_branch_work(world: Any) -> None:
    shutil.rmtree(world.root / ".git")
    world.git("init", "-q")
    world.do("git_add", all=True)
    first = world.do("git_commit", message="first")["commit"]
    assert world.git("rev-parse", "main") == first
    world.git("checkout", "-q", "--detach")
    second = world.do("git_commit", message="second", allow_empty=True)["commit"]
    assert world.git("rev-parse", "HEAD") == second
    assert world.git("rev-parse", "main") == first
    sound(world)


@pytest.mark.parametrize("name", SECRETS)
def test_a_commit_with_a_secret_that_somebody_staged_is_refused(world: Any, name: str) -> None:
    world.write(name, "hunter2\n")
    world.git("add", "-Af")
    before = world.git("rev-parse", "HEAD")
    error, said = world.refused("git_commit", message="x")
    assert error is ErrorType.PERMISSION_DENIED
    assert name in said
    assert world.git("rev-parse", "HEAD") == before


def test_who_commits_comes_from_the_persons_settings_as_data(
    world: Any, home: Path, tmp_path: Path
) -> None:
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Own Name\n\temail = e@example.org\n"
        "[core]\n\thooksPath = /nowhere\n\teditor = false\n"
        f"[include]\n\tpath = {tmp_path}/more\n[alias]\n\tcommit = "
        "!false\n[commit]\n\tgpgSign = true\n"
    )
    (tmp_path / "more").write_text("[user]\n\tname = Included\n")
    world.do("git_commit", message="x", allow_empty=True)
    assert world.git("log", "-1", "--format=%an") == "Own Name"
    world.tools = git_tools(enabled_tools=["all"], author=("Robot", "r@example.org"))
    world.do("git_commit", message="x", allow_empty=True)
    assert world.git("log", "-1", "--format=%an <%ae>") == "Robot <r@example.org>"
    (home / ".gitconfig").unlink()
    git_calls.close_sessions()  # What a session sees of them is read with its first command.
    world.tools = git_tools(enabled_tools=["all"])
    _, said = world.refused("git_commit", message="x", allow_empty=True)
    assert "user.name" in said
    # As with commands, a repository may have a name of its own for the person.
    world.git("config", "user.name", "Repository")
    world.git("config", "user.email", "r@example.org")
    world.do("git_commit", message="x", allow_empty=True)
    assert world.git("log", "-1", "--format=%an") == "Repository"


def test_settings_in_the_folder_we_happen_to_be_in_are_not_the_persons(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.root)
    world.write(".gitconfig", "[user]\n\tname = Repository\n\temail = r@example.org\n")
    for home in ("", "."):
        git_calls.close_sessions()
        monkeypatch.setenv("HOME", home)
        assert "user.name" in world.refused("git_commit", message="x", allow_empty=True)[1]


# ---- switch


def test_branches_are_made_and_checked_out(world: Any) -> None:
    world.write("c.txt", "kept\n")
    answer = world.do("git_switch", branch="feature/x", create=True)
    assert (answer["created"], answer["changed_count"]) == (True, 0)
    assert world.git("branch", "--show-current") == "feature/x"
    world.do("git_add", all=True)
    world.do("git_commit", message="c")
    assert world.do("git_switch", branch="main")["changed_files"] == ["c.txt"]
    assert not (world.root / "c.txt").exists()
    assert world.git("status", "--short") == ""
    world.do("git_switch", branch="old", create=True, start_point="HEAD~2")
    assert (world.root / "a.txt").read_text() == "one\n"
    assert world.refused("git_switch", branch="main", create=True)[0] is ErrorType.IO_ERROR
    world.do("git_switch", branch="feature/x", force_create=True)
    assert world.git("rev-parse", "feature/x") == world.git("rev-parse", "main~2")
    assert "checkout: moving from old to feature/x" in world.git("reflog", "-1")
    sound(world)


def test_a_branch_that_is_not_there_and_local_changes_stop_a_switch(world: Any) -> None:
    assert world.refused("git_switch", branch="nothing")[0] is ErrorType.NOT_FOUND
    world.git("branch", "old", "HEAD~1")
    world.write("a.txt", "mine\n")
    before = world.state()
    _, said = world.refused("git_switch", branch="old")
    assert "would be overwritten" in said and "ferrule-git" not in said
    assert world.state() == before
    world.git("checkout", "-q", "a.txt")
    world.git("update-ref", "refs/remotes/origin/other", "HEAD")
    assert world.refused("git_switch", branch="other")[0] is ErrorType.NOT_FOUND


PROTECTED = (
    ".env",
    ".github/workflows/ci.yml",
    ".gitmodules",
    "sub/k.pem",
    ".vscode/tasks.json",
    "agents/x.yaml",
    ".ferrule/rules",
)


@pytest.mark.parametrize("name", PROTECTED)
@pytest.mark.parametrize("how", ["appears", "changes", "vanishes"])
def test_a_switch_that_would_write_an_untouchable_file_is_refused_before_it_begins(
    world: Any, name: str, how: str
) -> None:
    if how != "appears":
        world.commit("before", **{name: "old\n"})
    world.git("checkout", "-q", "-b", "other")
    if how == "vanishes":
        world.git("rm", "-qf", "--", name)
        world.git("commit", "-qm", "gone")
    else:
        world.commit("with it", **{name: "new\n"})
    world.git("checkout", "-q", "main")
    before = world.state()
    error, said = world.refused("git_switch", branch="other")
    assert error is ErrorType.PERMISSION_DENIED
    assert name in said
    assert world.state() == before


def test_an_ignored_secret_is_not_overwritten(world: Any) -> None:
    world.git("checkout", "-q", "-b", "other")
    world.commit("tracked", **{"notes.txt": "theirs\n"})
    world.git("checkout", "-q", "main")
    world.write(".gitignore", "notes.txt\n")
    world.write("notes.txt", "mine\n")
    assert not world.ask("git_switch", branch="other").success
    assert (world.root / "notes.txt").read_text() == "mine\n"


def test_a_branch_that_another_work_tree_has_checked_out_is_not_switched_to(
    world: Any, tmp_path: Path
) -> None:
    world.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    assert "already" in world.refused("git_switch", branch="side")[1]
    assert world.git("branch", "--show-current") == "main"
    world.do("git_switch", branch="free", create=True)
    assert "side" in world.git("worktree", "list")


# ---- rebase


def forked(world: Any, theirs: dict[str, str], mine: dict[str, str]) -> None:
    world.git("checkout", "-q", "-b", "feature")
    world.commit("mine", **mine)
    world.git("checkout", "-q", "main")
    world.commit("theirs", **theirs)
    world.git("checkout", "-q", "feature")


def test_commits_are_replayed_on_top_of_another_branch(world: Any) -> None:
    forked(world, {"t.txt": "t\n"}, {"m.txt": "m\n"})
    answer = world.do("git_rebase", onto="main")
    assert world.git("log", "--format=%s", "-2") == "mine\ntheirs"
    assert world.git("log", "-1", "--format=%an|%cn") == "A|Person Example"
    assert answer["head"] == world.git("rev-parse", "feature")
    assert set(answer["changed_files"]) == {"t.txt", "m.txt"}
    assert world.git("status", "--short", "--branch") == "## feature"
    assert world.git("rev-parse", "ORIG_HEAD") == answer["before"]
    assert not (world.root / ".git/rebase-merge").exists()
    assert world.do("git_rebase", onto="main")["receipt"]["exit_category"] == "nothing_to_do"
    sound(world)


def test_a_conflict_takes_everything_back(world: Any) -> None:
    forked(world, {"a.txt": "theirs\n"}, {"a.txt": "mine\n"})
    before = (
        world.git("rev-parse", "HEAD"),
        world.git("status", "--short"),
        (world.root / "a.txt").read_text(),
    )
    _, said = world.refused("git_rebase", onto="main")
    assert "`a.txt`" in said and "as it was" in said
    assert (
        world.git("rev-parse", "HEAD"),
        world.git("status", "--short"),
        (world.root / "a.txt").read_text(),
    ) == before
    assert world.git("branch", "--show-current") == "feature"
    assert not (world.root / ".git/rebase-merge").exists()
    sound(world)


def test_a_rebase_needs_a_clean_tree(world: Any) -> None:
    forked(world, {"t.txt": "t\n"}, {"m.txt": "m\n"})
    world.write("a.txt", "open\n")
    assert "commit them first" in world.refused("git_rebase", onto="main")[1]


@pytest.mark.parametrize("side", ["theirs", "mine", "between"])
def test_a_rebase_that_would_write_an_untouchable_file_on_the_way_is_refused(
    world: Any, side: str
) -> None:
    name = ".github/workflows/ci.yml"
    files = {name: "x\n"}
    if side == "between":
        world.git("checkout", "-q", "-b", "feature")
        world.commit("in", **files)
        world.git("rm", "-qf", name)
        world.git("commit", "-qm", "and out again")
        world.git("checkout", "-q", "main")
        world.commit("theirs", **{"t.txt": "t\n"})
        world.git("checkout", "-q", "feature")
    else:
        forked(
            world,
            files if side == "theirs" else {"t.txt": "t\n"},
            files if side == "mine" else {"m.txt": "m\n"},
        )
    before = world.state()
    error, said = world.refused("git_rebase", onto="main")
    assert error is ErrorType.PERMISSION_DENIED and name in said
    assert world.state() == before


# ---- fetch and pull


@pytest.fixture
def remote(world: Any) -> Path:
    """A bare repository inside the workspace, one commit ahead, and configured as `origin`."""
    bare = world.root / "remotes/origin.git"
    bare.parent.mkdir()
    world.git("clone", "-q", "--bare", str(world.root), str(bare))
    other = world.root.parent / "other"
    world.git("clone", "-q", str(bare), str(other))
    (other / "t.txt").write_text("theirs\n")
    for command in (["add", "-A"], ["commit", "-qm", "theirs"], ["push", "-q", "origin", "main"]):
        import subprocess

        from_env = {
            **os.environ,
            "GIT_AUTHOR_NAME": "B",
            "GIT_AUTHOR_EMAIL": "b@e",
            "GIT_COMMITTER_NAME": "B",
            "GIT_COMMITTER_EMAIL": "b@e",
        }
        subprocess.run(["git", *command], cwd=other, env=from_env, check=True, capture_output=True)
    world.write(".git/info/exclude", "remotes\n")
    world.git("remote", "add", "origin", "remotes/origin.git")
    return bare


@pytest.mark.parametrize(
    "spelling",
    [
        "remotes/origin.git",
        "./remotes/origin.git",
        "{root}/remotes/origin.git",
        "file://{root}/remotes/origin.git",
    ],
)
def test_a_remote_inside_the_workspace_is_fetched_from(
    world: Any, remote: Path, spelling: str
) -> None:
    world.git("remote", "set-url", "origin", spelling.replace("{root}", str(world.root)))
    answer = world.do("git_fetch")
    assert answer["updated"] == ["origin/main"]
    assert world.git("log", "-1", "--format=%s", "origin/main") == "theirs"
    assert world.git("log", "-1", "--format=%s") == "commit 3"
    assert world.do("git_fetch", branch="main")["receipt"]["exit_category"] == "nothing_to_do"
    assert answer["receipt"]["policy"]["side_effect"] == "external"
    assert world.refused("git_fetch", remote="upstream")[0] is ErrorType.NOT_FOUND
    sound(world)


def test_where_fetched_branches_go_is_not_for_the_configuration_to_say(
    world: Any, remote: Path
) -> None:
    world.git("config", "--replace-all", "remote.origin.fetch", "+refs/heads/*:refs/heads/*")
    world.git("config", "remote.origin.mirror", "true")
    world.git("config", "remote.origin.tagOpt", "--tags")
    world.do("git_fetch")
    assert world.git("log", "-1", "--format=%s", "main") == "commit 3"


def test_branches_that_are_gone_are_forgotten_if_asked(world: Any, remote: Path) -> None:
    world.do("git_fetch")
    world.git("update-ref", "refs/remotes/origin/gone", "HEAD")
    world.git("pack-refs", "--all")
    world.do("git_fetch")
    assert "origin/gone" in world.git("branch", "-r")
    assert "origin/gone" in world.do("git_fetch", prune=True)["updated"]
    assert "origin/gone" not in world.git("branch", "-r")
    assert world.git("rev-parse", "main")
    sound(world)


def test_a_branch_is_moved_forward_or_not_at_all(world: Any, remote: Path) -> None:
    answer = world.do("git_pull_ff_only")
    assert (answer["changed_files"], answer["changed_count"]) == (["t.txt"], 1)
    assert (world.root / "t.txt").read_text() == "theirs\n"
    assert world.git("rev-parse", "main") == world.git("rev-parse", "origin/main")
    assert world.git("status", "--short") == ""
    assert world.do("git_pull_ff_only")["receipt"]["exit_category"] == "nothing_to_do"
    world.git("reset", "-q", "--hard", "HEAD~1")
    world.commit("mine", **{"m.txt": "m\n"})
    assert not world.ask("git_pull_ff_only").success
    assert world.git("log", "-1", "--format=%s") == "mine"
    sound(world)


def test_a_pull_that_would_write_an_untouchable_file_is_refused(world: Any, remote: Path) -> None:
    import subprocess

    other = world.root.parent / "other"
    (other / ".env").write_text("theirs\n")
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": "B",
        "GIT_AUTHOR_EMAIL": "b@e",
        "GIT_COMMITTER_NAME": "B",
        "GIT_COMMITTER_EMAIL": "b@e",
    }
    for command in (["add", "-Af"], ["commit", "-qm", "env"], ["push", "-q", "origin", "main"]):
        subprocess.run(["git", *command], cwd=other, env=env, check=True, capture_output=True)
    world.write(".env", "mine\n")
    error, said = world.refused("git_pull_ff_only")
    assert error is ErrorType.PERMISSION_DENIED and ".env" in said
    assert (world.root / ".env").read_text() == "mine\n"
    assert world.git("log", "-1", "--format=%s") == "commit 3"


# ---- order


@pytest.mark.parametrize(
    "marker",
    [
        "MERGE_HEAD",
        "CHERRY_PICK_HEAD",
        "BISECT_LOG",
        "rebase-merge/x",
        "rebase-apply/x",
        "sequencer/x",
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        ("git_commit", {"message": "x"}),
        ("git_switch", {"branch": "old"}),
        ("git_rebase", {"onto": "old"}),
    ],
)
def test_what_somebody_left_half_done_is_not_gone_on_with(
    world: Any, marker: str, call: tuple[str, dict[str, Any]]
) -> None:
    world.git("branch", "old", "HEAD~1")
    world.write(f".git/{marker}", "x\n")
    before = world.state()
    _, said = world.refused(call[0], **call[1])
    assert "half done" in said
    assert world.state() == before


def test_another_git_at_work_is_waited_for_by_nobody_and_its_lock_stays(world: Any) -> None:
    (world.root / ".git/index.lock").write_text("")
    world.write("a.txt", "x\n")
    assert "another git is at work" in world.refused("git_add", all=True)[1]
    assert (world.root / ".git/index.lock").exists()
    assert world.do("git_status")["clean"] is False


def test_a_cancelled_operation_gives_the_lock_back(world: Any) -> None:
    script = 'test "$1" = prepared || exit 0\ntouch reached\nexec sleep 60'
    write_hook(world, "reference-transaction", script)
    world.git("add", "-A")
    world.write("a.txt", "changed\n")

    async def cancel() -> None:
        call = asyncio.ensure_future(world.answer("git_commit", message="x", all=True))
        while not (world.root / "reached").exists():
            assert not call.done(), call.result()
            await asyncio.sleep(0.02)
        assert list((world.root / ".git").rglob("*.lock"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    git_calls.run(cancel())
    assert not list((world.root / ".git").rglob("*.lock"))
    assert world.git("log", "-1", "--format=%s") == "commit 3"


def write_hook(world: Any, name: str, text: str) -> None:
    hook = world.root / ".git/hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{text}\n")
    hook.chmod(0o755)


def test_a_hook_may_stage_what_it_changes(world: Any) -> None:
    write_hook(world, "pre-commit", "echo formatted >> a.txt\ngit add a.txt\ngit write-tree")
    world.write("a.txt", "changed\n")
    assert world.do("git_commit", message="x", all=True)["hooks_run"] == ["pre-commit"]
    assert world.git("show", "HEAD:a.txt") == "changed\nformatted"


def test_a_branch_is_sent_and_what_is_there_is_never_overwritten(world: Any, remote: Path) -> None:
    error, said = world.refused("git_push")
    assert error is ErrorType.IO_ERROR and "rejected" in said
    world.do("git_pull_ff_only")
    mine = world.commit("mine", **{"m.txt": "m\n"})
    write_hook(world, "pre-push", "touch hooked")
    answer = world.do("git_push")
    assert (answer["branch"], answer["head"], answer["hooks_run"]) == ("main", mine, ["pre-push"])
    assert git(remote, "rev-parse", "main") == mine == world.git("rev-parse", "origin/main")
    assert (world.root / "hooked").exists()
    assert world.do("git_push")["receipt"]["exit_category"] == "nothing_to_do"
    assert world.refused("git_push", branch="nothing")[0] is ErrorType.NOT_FOUND
    assert world.refused("git_push", remote="upstream")[0] is ErrorType.NOT_FOUND
    world.do("git_switch", branch="new", create=True)
    world.do("git_push")
    assert git(remote, "rev-parse", "new") == mine


def test_a_push_asks_and_names_the_place(world: Any) -> None:
    world.git("remote", "add", "origin", "https://me:hunter2@example.org/a.git")
    push = next(tool for tool in world.tools if tool.name == "git_push")
    assert push.preview is not None and str(push.side_effect) == "external"
    context = git_calls.make_context(Workspace(world.root))
    shown = git_calls.run(push.preview({}, context))
    assert "https://***@example.org/a.git" in shown and "hunter2" not in shown


def test_changes_are_put_away_and_brought_back(world: Any) -> None:
    assert world.refused("git_stash", action="pop")[0] is ErrorType.NOT_FOUND
    assert world.do("git_stash", action="push")["receipt"]["exit_category"] == "nothing_to_do"
    world.write("a.txt", "changed\n")
    world.write("new.txt", "new\n")
    assert world.do("git_stash", action="push", message="later")["changed_files"] == ["a.txt"]
    assert world.git("stash", "list") == "stash@{0}: On main: later"
    assert world.git("status", "--short") == "?? new.txt"
    world.write("a.txt", "mine\n")
    assert "commit them first" in world.refused("git_stash", action="pop")[1]
    theirs = world.commit("theirs", **{"a.txt": "theirs\n"})
    error, said = world.refused("git_stash", action="pop")
    assert error is ErrorType.IO_ERROR and "`a.txt`" in said
    assert world.git("status", "--short") == "" and world.git("rev-parse", "HEAD") == theirs
    assert world.git("stash", "list")
    world.git("reset", "-q", "--hard", "HEAD~1")
    assert world.do("git_stash", action="pop")["changed_count"] == 1
    assert (world.root / "a.txt").read_text() == "changed\n"
    sound(world)


def test_a_stash_that_would_write_an_untouchable_file_is_refused(world: Any) -> None:
    name = ".github/workflows/ci.yml"
    world.commit("ci", **{name: "old\n"})
    world.write(name, "new\n")
    error, said = world.refused("git_stash", action="push")
    assert error is ErrorType.PERMISSION_DENIED and name in said
    assert (world.root / name).read_text() == "new\n"
    world.git("stash", "push", "-q")
    assert world.refused("git_stash", action="pop")[0] is ErrorType.PERMISSION_DENIED
    assert (world.root / name).read_text() == "old\n"


def test_without_a_sandbox_only_reading_remains(world: Any) -> None:
    world.resources = git_calls.UNCONFINED
    world.write("a.txt", "changed\n")
    before = world.state()
    for name, arguments in (
        ("git_add", {"all": True}),
        ("git_commit", {"message": "x", "all": True}),
        ("git_switch", {"branch": "new", "create": True}),
        ("git_rebase", {"onto": "HEAD"}),
        ("git_stash", {"action": "push"}),
        ("git_fetch", {}),
        ("git_pull_ff_only", {}),
        ("git_push", {}),
    ):
        error, said = world.refused(name, **arguments)
        assert error is ErrorType.PERMISSION_DENIED, name
        assert f"`{name}` was not run: no sandbox" in said and "ferrule doctor" in said
    assert world.do("git_status")["files"] == [{"path": "a.txt", "unstaged": "modified"}]
    assert "+changed" in world.do("git_diff")["text"]
    assert world.state() == before


def test_a_refused_operation_leaves_no_lock_behind(world: Any) -> None:
    world.refused("git_switch", branch="nothing")
    assert "use `git_add` first" in world.refused("git_commit", message="x")[1]
    world.write("a.txt", "x\n")
    world.do("git_add", all=True)
    sound(world)
