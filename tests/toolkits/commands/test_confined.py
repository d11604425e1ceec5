"""Commands of a session run in its sandbox, and results say what held them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_world import World

from ferrule.core.calls import ErrorType, encode_json
from ferrule.core.errors import ToolFailed
from ferrule.permissions.approvals import ApprovalAnswer, Approver
from ferrule.sandbox.backends import selection
from ferrule.sandbox.backends.probes import Probes, probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy, confinement, run_command
from ferrule.toolkits.commands import session_sandbox as confined_module
from unheld import open_unheld


def offered(folder: Path) -> bool:
    try:
        selection.choose_backend(SandboxPolicy(folder), probe())
    except MissingProtections:
        return False
    return True


@pytest.fixture
def held(world: World) -> World:
    if not offered(world.folder):
        pytest.skip("this machine cannot hold commands as required")
    world.set(CommandPolicy(shell_allowed=True, confine=SandboxPolicy(world.folder)))
    return world


@pytest.mark.proves("command.sandbox")
async def test_what_a_sandbox_holds_is_held_and_said(
    held: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret"
    elsewhere.write_text("secret")
    (held.folder / ".env").write_text("secret")
    # The text says nothing of what it reads: only the kernel can refuse it.
    (held.folder / "read.sh").write_text(f"cat '{elsewhere}'; cat .env; echo made > new.txt\n")
    record = await held.run(["sh", "read.sh"])
    assert "secret" not in record["stdout"].replace("secret'", "")
    assert (held.folder / "new.txt").read_text() == "made\n"
    assert record["sandbox"]["kind"] != "none"
    assert {"file_reads", "names", "network"} <= set(record["sandbox"]["enforced"])


@pytest.mark.proves("command.shell-where-confined")
async def test_a_shell_runs_by_default_where_the_sandbox_enforces_what_is_required(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = CommandPolicy(confine=SandboxPolicy(world.folder))
    words = {"command": "echo a | tr a b && cd sub && echo $((1 + 1)) > n && cat n"}

    async def answer(policy: CommandPolicy) -> str:
        world.set(policy)
        return await run_command.handler(
            **run_command.arguments.check(words).values, context=world.context()
        )

    if offered(world.folder):
        assert await answer(policy) == "b\n2\n[the next command starts in `sub`]"
        assert (world.folder / "sub/n").read_text() == "2\n"
    for without in (
        replace(policy, shell_allowed=False),
        replace(policy, on_missing_protection="off"),
    ):
        with pytest.raises(ToolFailed, match="no shell may run"):
            await answer(without)
    monkeypatch.setattr(confinement, "probe", lambda: Probes(why={"mount": "refused"}))
    with pytest.raises(ToolFailed, match="no shell may run"):
        await answer(policy)


@pytest.mark.proves("command.sandbox")
async def test_background_time_and_end_are_the_same_in_a_sandbox(held: World) -> None:
    record = await held.run("echo $$; sleep 1000", background_after_ms=200)
    assert record["status"] == "running"
    assert (await held.call("kill_command", handle_id=record["handle_id"]))["cancelled"]
    with pytest.raises(ProcessLookupError):
        os.kill(record["pid"], 0)
    assert (await held.run("sleep 1000", timeout_ms=300))["status"] == "timed_out"
    assert (await held.run(["cat", "a.txt"]))["stdout"] == "one\ntwo\n"


@pytest.mark.proves("command.filtered-output-kept")
async def test_what_a_filter_hides_is_kept_in_a_sandbox_too(held: World) -> None:
    record = await held.run("seq 100 | tail -1")
    assert record["stdout"] == "100\n"
    read = await held.call("read_command_output", path=record["output_capture"]["full_output_path"])
    assert read["total_bytes"] == 292 and read["content"].startswith("1\n2\n")


async def test_one_sandbox_serves_a_session_and_closes_with_it(held: World) -> None:
    await asyncio.gather(*(held.run(["true"]) for _ in range(3)))
    first = await held.commands.sandbox.get(SandboxPolicy(held.folder), "required", held.context())
    await held.run(["true"])
    assert (
        await held.commands.sandbox.get(SandboxPolicy(held.folder), "required", held.context())
        is first
    )
    await held.commands.close()
    with pytest.raises(RuntimeError, match="closed"):
        await first.start(None)  # pyright: ignore[reportArgumentType]


class Person:
    def __init__(self, choice: Any) -> None:
        self.choice, self.asked = choice, 0

    async def ask(self, request: Any) -> ApprovalAnswer:
        self.asked += 1
        return ApprovalAnswer(self.choice, note="rather not")


def nothing_holds(policy: SandboxPolicy, probes: Any) -> Any:
    raise MissingProtections(
        (), selection.available_backends(policy, probes)[-1], detail="nothing holds commands here"
    )


@pytest.mark.proves("command.missing-protection")
async def test_without_a_sandbox_that_is_required_nothing_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_module, "choose_backend", nothing_holds)
    world.set(CommandPolicy(shell_allowed=True, confine=SandboxPolicy(world.folder)))
    for _ in range(2):
        with pytest.raises(ToolFailed, match="nothing holds commands here") as raised:
            await world.run(["touch", "made"])
        assert raised.value.error_type is ErrorType.PERMISSION_DENIED
    assert not (world.folder / "made").exists()
    assert world.list_left_files() == []


@pytest.mark.proves("command.missing-protection")
async def test_where_a_person_may_decide_they_are_asked_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_module, "choose_backend", nothing_holds)
    world.set(
        CommandPolicy(
            shell_allowed=True, confine=SandboxPolicy(world.folder), on_missing_protection="ask"
        )
    )
    with pytest.raises(ToolFailed):  # nobody to ask
        await world.run(["true"])
    yes = world.resources[Approver] = Person("session")
    assert (await world.run(["echo", "hi"]))["sandbox"]["kind"] == "none"
    assert (await world.run(["true"]))["success"]
    assert yes.asked == 1


async def test_a_sandbox_that_the_run_was_given_is_used(world: World) -> None:
    mine = open_unheld()
    world.resources[Sandbox] = mine
    record = await world.run(["true"])
    assert record["success"] and mine.server_pid is not None
    await mine.close()


# ---- previews, and repositories that a command begins


async def test_a_record_of_a_preview_lists_what_would_change(held: World) -> None:
    if not (probe().namespaces and probe().overlay):
        pytest.skip("this machine cannot show what a command would change")
    held.set(CommandPolicy(shell_allowed=True, confine=SandboxPolicy(held.folder, preview=True)))
    record = await held.run("echo changed > a.txt; echo new > sub/new.txt; rm -f gone")
    assert record["changes"] == [
        {"path": "a.txt", "kind": "changed", "size": 8},
        {"path": "sub/new.txt", "kind": "created", "size": 4},
    ]
    assert any("a preview" in note for note in record["notes"])
    assert (await held.run(["true"]))["changes"] == []
    assert (held.folder / "a.txt").read_text() == "one\ntwo\n"


async def test_a_preview_of_many_changes_fits_a_result_and_says_how_many_it_leaves_out(
    held: World,
) -> None:
    if not (probe().namespaces and probe().overlay):
        pytest.skip("this machine cannot show what a command would change")
    held.set(
        CommandPolicy(
            shell_allowed=True, confine=SandboxPolicy(held.folder, preview=True), result_bytes=8000
        )
    )
    record = await held.run("mkdir many; cd many; touch $(seq -f 'a-file-with-a-name-%g' 300)")
    assert len(encode_json(record).encode()) <= 8000
    assert 0 < len(record["changes"]) < 300
    assert len(record["changes"]) + record["changes_left_out"] == 300


async def test_what_is_no_preview_has_no_list_of_changes(held: World) -> None:
    assert "changes" not in await held.run("echo x > a.txt")


@pytest.mark.parametrize(
    ("command", "undo"),
    [
        ("git rebase -s ours main", "git rebase --abort"),
        ("git rebase --apply main", "git rebase --abort"),
        ("git am topic.patch", "git am --abort"),
        ("git cherry-pick -x main~1 main", "git cherry-pick --quit"),
        ("git revert -s --no-edit HEAD HEAD~1", "git cherry-pick --quit"),
    ],
)
async def test_an_operation_of_git_that_obeys_files_says_how_it_is_taken_back(
    held: World, command: str, undo: str
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    if not probe().user_namespaces:
        pytest.skip("no user namespaces: names cannot be refused here")
    commit = "git add . && git commit -q -m"
    subprocess.run(
        "git init -q -b main && git config user.name x && git config user.email x@example.org && "
        f"{commit} 1 && echo x > m1 && {commit} 2 && git switch -q -c topic "
        f"HEAD~1 && echo t > t && {commit} 3 && git format-patch -1 --stdout > ../topic.patch && "
        f"git switch -q main && echo x > m2 && {commit} 4 && git switch -q topic && "
        "mv ../topic.patch .",
        shell=True,
        check=True,
        cwd=held.folder,
        capture_output=True,
    )
    before = await held.run("git log -1 --format=%H%d; git status --short")
    record = await held.run(command)
    assert record["exit_code"] != 0
    said = " ".join(record["notes"])
    assert "when a person goes on with" in said and f"`{undo}`" in said
    assert (await held.run(undo))["exit_code"] == 0
    after = await held.run("git log -1 --format=%H%d; git status --short")
    assert after["stdout"] == before["stdout"]
    assert not list((held.folder / ".git").glob("rebase-*"))
    assert not (held.folder / ".git/sequencer").exists()


@pytest.mark.parametrize("runs", [True, False])
async def test_hooks_run_confined_and_the_result_names_them(
    held: World, tmp_path_factory: pytest.TempPathFactory, runs: bool
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", str(held.folder)], check=True)
    hook = held.folder / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ntouch ran '{elsewhere}/outside'; exit 0\n")
    hook.chmod(0o755)
    held.set(CommandPolicy(shell_allowed=True, confine=SandboxPolicy(held.folder, git_hooks=runs)))
    record = await held.run(
        "git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m one; "
        "echo x >> .git/hooks/pre-commit"
    )
    said = " ".join(record["notes"])
    assert ("hooks of the repository ran, confined like the command: pre-commit" in said) is runs
    assert (held.folder / "ran").exists() is runs
    assert not (elsewhere / "outside").exists()
    assert "outside'; exit 0\n" in hook.read_text() and "x" not in hook.read_text().splitlines()


async def test_a_repository_that_a_command_began_is_explained_with_the_way_to_make_it(
    held: World,
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    record = await held.run("git init sub/new")
    assert record["exit_code"] != 0
    said = " ".join(record["notes"])
    assert "a repository was begun in `sub/new` and not finished" in said
    assert "`rm -r sub/new/.git` removes it" in said and "run `git init sub/new`" in said
    assert (await held.run("rm -r sub/new/.git && ls -A sub/new"))["stdout"] == ""
    cloned = await held.run("git init -q /tmp/it && git clone -q /tmp/it taken")
    assert "nothing is left of it" in " ".join(cloned["notes"])


async def test_a_whole_repository_is_never_called_half_made(held: World) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", "--template=", str(held.folder)], check=True)
    said = " ".join((await held.run("git config core.pager x"))["notes"])
    assert "half made" not in said and "rm -r" not in said
    assert "`git -c name=value`" in said
    hooks = await held.run("mkdir .git/hooks")
    assert "rm -r" not in " ".join(hooks["notes"])


TAKES = """
import os, socket, sys, time
root = sys.argv[1]
s = socket.socket(socket.AF_UNIX)
s.bind('/tmp/handing')
s.listen()
os.rename('/tmp/handing', '/tmp/handed')  # whoever sees it finds somebody who listens
d = socket.recv_fds(s.accept()[0], 9, 1)[1][0]
for _ in range(500):  # until who handed it over is gone with its view
    if os.readlink(f'/proc/self/fd/{d}') == '/':
        break
    time.sleep(0.01)
for what in ('os.read(os.open(".env", os.O_RDONLY, dir_fd=d), 99)', 'os.mkdir(".harness", dir_fd=d)'):
    try:
        print('did', eval(what))
    except OSError as error:
        print('no:', error.strerror)
print('gone' if os.readlink(f'/proc/self/fd/{d}') == '/' else 'still there')
"""
HANDS_OVER = """
import os, socket, sys, time
for _ in range(3000):
    if os.path.exists('/tmp/handed'):
        break
    time.sleep(0.01)
s = socket.socket(socket.AF_UNIX)
s.connect('/tmp/handed')
socket.send_fds(s, [b'x'], [os.open(sys.argv[1], os.O_PATH)])
"""


@pytest.mark.parametrize("background", [False, True], ids=["at-once", "in-the-background"])
async def test_a_folder_that_one_call_hands_to_another_shows_nothing_when_its_view_is_gone(
    held: World, background: bool
) -> None:
    (held.folder / ".env").write_text("secret")
    (held.folder / "takes.py").write_text(TAKES)
    (held.folder / "hands.py").write_text(HANDS_OVER)
    takes = ["python3", "takes.py", str(held.folder)]
    hands = ["python3", "hands.py", str(held.folder)]
    if background:
        started = await held.run(takes, background_after_ms=0)
        await held.run(hands)
        record = await held.wait(started)
    else:
        record, _ = await asyncio.gather(held.run(takes), held.run(hands))
    assert record["stdout"].splitlines()[-1] == "gone", record
    assert "did" not in record["stdout"], record
    assert not (held.folder / ".harness").exists()
