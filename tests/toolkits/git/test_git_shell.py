"""All gits of an operation share a sandbox, and nobody notices but by the time it takes."""

from __future__ import annotations

import asyncio
from hashlib import sha1
from pathlib import Path
from typing import Any

import git_calls
import pytest

from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.git.run import open_git

pytestmark = pytest.mark.skipif(
    not (probe().namespaces or probe().bwrap), reason="nothing confines commands here"
)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The words of each program that a sandbox started."""
    found: list[tuple[str, ...]] = []
    run = Sandbox.run

    async def note(self: Sandbox, command: Any, *more: Any, **options: Any) -> Any:
        found.append(command.argv)
        return await run(self, command, *more, **options)

    monkeypatch.setattr(Sandbox, "run", note)
    return found


def test_few_sandboxes_are_started(world: Any, started: list[tuple[str, ...]]) -> None:
    world.write("a.txt", "changed\n")
    for tool, arguments in (
        ("git_status", {}),
        ("git_diff", {}),
        ("git_add", {"paths": ["a.txt"]}),
        ("git_commit", {"message": "m"}),
        ("git_log", {}),
        ("git_branch_list", {"contains": "HEAD"}),
    ):
        started.clear()
        world.do(tool, **arguments)
        assert started == [("sh",)], tool


ODD = (
    ("show", "-s", "--format=%B%x00%n", "HEAD"),
    ("cat-file", "blob", "HEAD:odd"),
    ("rev-parse", "--verify", "nothing such"),
    ("cat-file", "blob", "HEAD:empty"),
    ("cat-file", "--batch-check"),
    ("no-such-command", "$(touch x)", "'; touch x; '"),
)
INPUT = b"HEAD^{commit}\n$(touch x) `touch x` '; touch x; '\n%s %d \\n\n"


def test_each_has_its_own_output_status_and_complaint(
    world: Any, started: list[tuple[str, ...]]
) -> None:
    (Path(world.root) / "odd").write_bytes(b"\n\x00\xff no line end, 0\n\n1")
    (Path(world.root) / "empty").touch()
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "odd")

    async def compare() -> None:
        context = git_calls.make_context(Workspace(world.root))
        async with open_git(context) as git:
            # A git with settings of its own has a sandbox of its own.
            own = {"a.b": "c"}
            alone = [await git.run(*words, stdin=INPUT, settings=own) for words in ODD]
            assert ("sh",) not in started
            together = await asyncio.gather(*(git.run(*words, stdin=INPUT) for words in ODD))
        assert len(started) == len(ODD) + 1
        assert list(together) == alone
        assert [one.code for one in alone][:5] == [0, 0, 128, 0, 0]

    git_calls.run(compare())
    assert not (Path(world.root) / "x").exists()


def test_cancelling_one_ends_them_all(world: Any) -> None:
    async def cancel() -> None:
        context = git_calls.make_context(Workspace(world.root))
        async with open_git(context) as git:
            waiting = ("cat-file", "--batch-check")
            both = asyncio.gather(git.run(*waiting), git.run("-c", "alias.w=!sleep 60", "w"))
            await asyncio.sleep(0.3)
            both.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(both, 20)
            assert git.sandbox is not None and not git.sandbox.is_busy

    git_calls.run(cancel())


def test_any_bytes_reach_a_git_as_its_input(world: Any, started: list[tuple[str, ...]]) -> None:
    given = bytes(range(256)) * 256  # 65,536: more is not for the shell
    more = given + b"1"

    async def hash_both() -> list[str]:
        async with open_git(git_calls.make_context(Workspace(world.root))) as git:
            ran = [await git.run("hash-object", "--stdin", stdin=one) for one in (given, more)]
        return [one.text.strip() for one in ran]

    expected = [sha1(b"blob %d\0%s" % (len(one), one)).hexdigest() for one in (given, more)]
    assert git_calls.run(hash_both()) == expected
    assert [argv[0] for argv in started] == ["sh", "git"]


def test_a_git_that_prints_more_than_is_kept_ends_the_shell_and_the_next_has_another(
    world: Any, started: list[tuple[str, ...]]
) -> None:
    async def cut() -> None:
        async with open_git(git_calls.make_context(Workspace(world.root))) as git:
            first = await git.run("log", keep=10)
            again = await git.run("log", keep=10)
            whole = await git.run("rev-parse", "--is-inside-work-tree")
        assert first.is_cut and len(first.output) == 10
        assert again == first
        assert whole.text == "true\n" and not whole.is_cut

    git_calls.run(cut())
    assert started == [("sh",)] * 3


def test_complaints_of_any_length_are_cut_and_those_that_follow_are_whole(world: Any) -> None:
    async def complain() -> None:
        async with open_git(git_calls.make_context(Workspace(world.root))) as git:
            long = await git.run("update-ref", "--stdin", stdin=b"x" * 60_000)
            short = await git.run("rev-parse", "--verify", "nothing such")
        assert long.complaint.startswith("fatal: unknown command: xxx")
        assert len(long.complaint) <= 8192
        assert short.complaint == "fatal: Needed a single revision"

    git_calls.run(complain())


def test_a_git_that_may_run_hooks_is_not_in_the_shell(
    world: Any, started: list[tuple[str, ...]]
) -> None:
    """A hook could print, in the names of the gits that follow, what it likes."""
    hook = Path(world.root, ".git/hooks/pre-commit")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    done = world.do("git_commit", message="m", allow_empty=True)
    assert done["hooks_run"] == ["pre-commit"]
    assert [argv[0] for argv in started] == ["sh", "git"]


@pytest.mark.parametrize(
    "setting",
    [
        "filter.x.clean",
        "filter.x.process",
        "diff.x.textconv",
        "merge.x.driver",
        "include.path",
        "includeIf.gitdir:x.path",
    ],
)
@pytest.mark.parametrize("where", ["--local", "--worktree"])
def test_nothing_is_shared_where_settings_of_the_repository_name_programs(
    world: Any, started: list[tuple[str, ...]], setting: str, where: str
) -> None:
    world.git("config", "extensions.worktreeConfig", "true")
    world.git("config", where, setting, "./x")
    world.do("git_status")
    assert [argv[0] for argv in started] == ["git"] * 3


def test_settings_and_variables_of_one_git_are_not_those_of_the_next(world: Any) -> None:
    async def ask() -> list[str]:
        async with open_git(git_calls.make_context(Workspace(world.root))) as git:
            ran = [
                await git.run("config", "--get", "core.hooksPath", hooks=hooks)
                for hooks in (False, True, False)
            ]
        return [one.text for one in ran]

    assert git_calls.run(ask()) == ["/dev/null\n", "", "/dev/null\n"]
