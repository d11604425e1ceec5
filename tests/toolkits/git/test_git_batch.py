"""Gits that read at the same time share a sandbox, and nobody notices but by the time it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import git_calls
import pytest

from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.git.run import open_git

pytestmark = pytest.mark.skipif(
    not (probe().namespaces or probe().bubblewrap), reason="nothing confines commands here"
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
    world.do("git_status")
    assert len(started) == 1
    started.clear()
    world.write("a.txt", "changed\n")
    world.do("git_add", paths=["a.txt"])
    world.do("git_commit", message="m")
    assert len(started) <= 7


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
            alone = [await git.run(*words, stdin=INPUT) for words in ODD]
            count = len(started)
            together = await asyncio.gather(*(git.run(*words, stdin=INPUT) for words in ODD))
        assert len(started) == count + 1
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
