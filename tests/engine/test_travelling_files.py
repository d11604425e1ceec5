"""The files of a session are kept as its history needs them, and never mixed with others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recorded_edits
from ferrule import Agent, Permissions, Storage, tool
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.events import Noticed, ToolAnswered, WorkspaceKept
from ferrule.engine.rewind.workspace_scan import WorkspaceScan
from ferrule.engine.session import Session
from ferrule.engine.travelling_files.kept_files import WorkspaceConflict, WorkspaceIncomplete
from ferrule.engine.travelling_files.repositories import WorkspaceCannotTravel, select_settings
from ferrule.models.scripted import Scripted, Step, calls, says
from ferrule.plugins import TravellingFiles
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.files import tools
from recorded_edits import describe, make_start, shell

RUNS = int(os.environ.get("FERRULE_TEST_TRAVELS", "2"))


def make_session(
    folder: Path, steps: list[Step], *, session: str = "", max_bytes: int = 1 << 20
) -> Session[Any]:
    """A session in a folder. All share one journal and one store."""

    @tool
    def do(command: str) -> str:
        """Run a command in the folder."""
        return shell(folder, command)

    top = folder.parent
    agent = Agent(
        Scripted(steps),
        [do, *tools.TOOLS],
        workspace=folder,
        permissions=Permissions(allow=["do", "Edit(**)", "Read(**)"]),
        plugins=[TravellingFiles(max_bytes=max_bytes)],
        storage=Storage(
            journal=SqliteJournal(top / "journal.db"), artifacts=FileArtifactStore(top / "store")
        ),
    )
    return agent.resume(session) if session else agent.session()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    make_start(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def do(*commands: str) -> list[Step]:
    return [*(calls(("do", {"command": command})) for command in commands), says("done")]


async def work(folder: Path, *commands: str, session: str = "") -> str:
    """Run the commands in a session, and close it."""
    opened = make_session(folder, do(*commands), session=session)
    await opened.run("go")
    await opened.close()
    return opened.id


def list_kept(session: Session[Any]) -> list[WorkspaceKept]:
    records = session.driver.log.journal.records(session.id)
    return [one.event for one in records if isinstance(one.event, WorkspaceKept)]


def test_runs_that_are_killed_after_each_turn_end_as_undisturbed_ones(tmp_path: Path) -> None:
    command = [sys.executable, recorded_edits.__file__, "0", str(RUNS), str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60 * RUNS)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == RUNS


async def test_a_session_finds_its_files_in_an_empty_folder(here: Path, there: Path) -> None:
    name = await work(here, "echo more >> a.txt; git commit -qam more; ln -s a.txt l; rm b.sh")
    await work(there, "true", session=name)
    assert describe(there) == describe(here)


async def test_a_folder_of_an_earlier_time_is_brought_up_to_date(here: Path, there: Path) -> None:
    name = await work(here, "mkdir d; echo 1 > d/one")
    await work(there, "rm -r d; echo 2 > d; git add -A; git commit -qm two", session=name)
    await work(here, "true", session=name)
    assert describe(here) == describe(there)
    assert (here / "d").read_text() == "2\n"


async def test_another_clone_of_the_same_commit_counts_as_the_sessions_own(
    here: Path, there: Path
) -> None:
    there.rmdir()
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", here, there], check=True)
    shell(there, "git config user.name Other")
    name = await work(here, "echo more >> a.txt; git commit -qam more")
    await work(there, "true", session=name)
    assert (there / "a.txt").read_text() == (here / "a.txt").read_text()
    head = "git rev-parse HEAD; git status --porcelain; git fsck --no-progress --no-dangling"
    assert shell(there, head) == shell(here, head)
    assert shell(there, "git config user.name") == "Other\n", "its settings stay"


async def test_a_file_that_is_ignored_here_and_kept_there_is_a_conflict(
    here: Path, there: Path
) -> None:
    name = await work(here, "echo 1 > one")
    await work(there, "true", session=name)
    await work(here, "mkdir build; echo 2 > build/out; rm .gitignore", session=name)
    (there / "build").mkdir()
    (there / "build" / "out").write_text("mine")
    with pytest.raises(WorkspaceConflict, match="build/out"):
        await work(there, "true", session=name)
    assert (there / "build" / "out").read_text() == "mine"


async def test_calls_that_run_together_are_each_kept(here: Path) -> None:
    first = "until [ -e ../go ]; do sleep 0.01; done; echo 1 > slow"
    both = calls(("do", {"command": first}), ("do", {"command": "echo 1 > quick; touch ../go"}))
    session = make_session(here, [both, says("done")])
    await session.run("go")
    kept = [path for event in list_kept(session)[1:] for path in event.paths]
    assert sorted(kept) == ["quick", "slow"]


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("echo mine > a.txt", "a.txt"),
        ("echo mine > new.txt", "new.txt"),
        ("git commit -q --allow-empty -m mine", ".git"),
        ("rm a.txt; mkdir a.txt; echo mine > a.txt/in", "a.txt/in"),
        ("ln -s nowhere l", "l"),
    ],
)
async def test_files_of_somebody_else_are_a_conflict_and_nothing_is_changed(
    command: str, path: str, here: Path, there: Path
) -> None:
    name = await work(here, "echo 1 > one")
    await work(there, "echo 2 > two", session=name)
    await work(here, "echo 3 > three", session=name)
    shell(there, command)
    before = describe(there)
    session = make_session(there, do(), session=name)
    for _ in range(2):
        with pytest.raises(WorkspaceConflict, match=path) as raised:
            await session.run("go")
    await session.close()
    assert raised.value.code == "workspace_conflict"
    assert raised.value.hint
    assert describe(there) == before

    shell(there, "rm -rf .git * .gitignore")
    await work(there, "true", session=name)
    assert describe(there) == describe(here), "after its hint was followed"


async def test_files_are_in_the_journal_before_the_result_of_the_call(here: Path) -> None:
    session = make_session(here, do("echo 1 > one"))
    await session.run("go")
    events = [one.event for one in session.driver.log.journal.records(session.id)]
    kept = [number for number, one in enumerate(events) if isinstance(one, WorkspaceKept)]
    answered = [number for number, one in enumerate(events) if isinstance(one, ToolAnswered)]
    assert kept[1] < answered[0]


async def test_the_files_are_those_that_the_journal_has_results_of(here: Path, there: Path) -> None:
    """The process dies with an effect of which the journal has no result."""
    session = make_session(here, [calls(("do", {"command": "echo 1 > one"})), dies_in_a_call(here)])
    with pytest.raises(SystemError):
        await session.run("go")
    session.driver.log.journal.release(session.id)
    assert (here / "two").exists()
    again = make_session(there, do(), session=session.id)
    await again.resume("the worker is gone")
    await again.close()
    assert (there / "one").exists()
    assert not (there / "two").exists()


def dies_in_a_call(folder: Path) -> Step:
    """Return an answer whose second call is never answered."""

    def step(history: object) -> Step:
        (folder / "two").write_text("half of a call")
        raise SystemError("the process dies here")

    return step


async def test_what_an_interrupted_call_left_is_kept_aside_when_the_session_comes_back(
    here: Path, there: Path
) -> None:
    session = make_session(here, [calls(("do", {"command": "echo 1 > one"})), dies_in_a_call(here)])
    with pytest.raises(SystemError):
        await session.run("go")
    session.driver.log.journal.release(session.id)
    await work(there, "echo 3 > three", session=session.id)
    again = make_session(here, do(), session=session.id)
    await again.run("go")
    await again.close()
    assert describe(here) == describe(there)
    records = again.driver.log.journal.records(session.id)
    said = [one.event.text for one in records if isinstance(one.event, Noticed)]
    assert any("two" in text for text in said)
    kept = FileArtifactStore(here.parent / "store")
    scope = Scope.from_identity(again.driver.log.identity)
    found = [kept.read(scope, one.reference, 0, 99) for one in kept.list(scope)]
    assert b"half of a call" in found


async def test_a_turn_that_changes_nothing_keeps_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [calls(("read_file", {"path": "a.txt"})), says("done")]
    session = make_session(here, [*steps, *steps])
    await session.run("go")
    first = list_kept(session)
    assert len(first) == 1

    def list_names(scan: WorkspaceScan) -> None:
        raise AssertionError("the files were looked at")

    monkeypatch.setattr(WorkspaceScan, "list_names", list_names)
    await session.run("go")
    assert list_kept(session) == first


async def test_only_what_is_new_is_kept_again(here: Path) -> None:
    session = make_session(here, do("echo 1 > one", "rm a.txt"))
    await session.run("go")
    base, one, gone = list_kept(session)
    assert {"a.txt", "b.sh", ".git", ".git/HEAD"} <= set(base.paths)
    assert one.paths == ("one",)
    assert (gone.paths, gone.states) == (("a.txt",), ("",))


async def test_secrets_hooks_and_folders_that_can_be_made_again_stay(
    here: Path, there: Path
) -> None:
    (here / ".env").write_text("KEY=secret")
    (here / "build").mkdir()
    (here / "build" / "big").write_text("made")
    (here / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    shell(here, "git config core.fsmonitor ./spy; git config core.hooksPath .evil")
    shell(here, "git remote add origin https://me:password@example.org/x")
    name = await work(here, "true")
    await work(there, "true", session=name)
    left = {path.name for path in there.rglob("*")} & {".env", "build", "big", "hooks"}
    assert not left
    settings = (there / ".git" / "config").read_text()
    assert "Me" in settings
    assert not [word for word in ("spy", "evil", "password") if word in settings]
    stored = b"".join(
        path.read_bytes() for path in (here.parent / "store").rglob("*") if path.is_file()
    )
    assert b"KEY=secret" not in stored
    assert b"password" not in stored


async def test_a_workspace_that_is_too_large_is_an_error_before_anything_is_done(
    here: Path,
) -> None:
    session = make_session(here, do("echo 1 > one"), max_bytes=100)
    with pytest.raises(FerruleError, match="more than 0 MiB") as raised:
        await session.run("go")
    assert (raised.value.code, bool(raised.value.hint)) == ("workspace_too_large", True)
    assert not (here / "one").exists()


async def test_a_workspace_that_grows_too_large_ends_the_run_with_an_error(here: Path) -> None:
    session = make_session(here, do("head -c 2000000 /dev/zero > big"))
    with pytest.raises(FerruleError) as raised:
        await session.run("go")
    assert raised.value.code == "workspace_too_large"
    await session.close()
    (here / "big").unlink()
    await work(here, "true", session=session.id)


async def test_a_content_that_is_not_kept_any_more_is_an_error_and_nothing_is_changed(
    here: Path, there: Path
) -> None:
    name = await work(here, "echo 1 > one")
    session = make_session(there, do(), session=name)
    store = FileArtifactStore(here.parent / "store")
    scope = Scope.from_identity(session.driver.log.identity)
    store.delete(scope, store.list(scope)[0].reference)
    with pytest.raises(WorkspaceIncomplete) as raised:
        await session.run("go")
    assert "artifacts.store" in raised.value.hint
    assert list(there.iterdir()) == []


async def test_a_repository_outside_of_the_workspace_is_refused(here: Path, tmp_path: Path) -> None:
    shell(here, f"git worktree add -q {tmp_path}/tree")
    session = make_session(tmp_path / "tree", do())
    with pytest.raises(WorkspaceCannotTravel, match="outside"):
        await session.run("go")


async def test_without_a_workspace_the_plugin_says_what_is_missing() -> None:
    agent = Agent(Scripted([says("done")]), plugins=[TravellingFiles()])
    with pytest.raises(ConfigError, match="artifact store"):
        await agent.run("go")


def test_settings_of_a_repository_go_along_if_they_run_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        '[user]\n\tname = "A \\"B\\""\n[core]\n\tpager = evil\n\tsshCommand = evil\n'
        '[alias]\n\tx = !evil\n[remote "o"]\n\turl = ext::sh -c evil\n\tfetch = +refs/*:refs/r/*\n'
        '[remote "p"]\n\turl = git@host.example:x.git\n[filter "f"]\n\tclean = evil\n'
        '[remote "q"]\n\turl = -oProxyCommand=evil\n\tuploadpack = evil\n'
    )
    found = select_settings(path).decode()
    assert "evil" not in found
    (tmp_path / "out").write_text(found)
    asked = shell(tmp_path, "git config -f out user.name; git config -f out remote.p.url")
    assert asked == 'A "B"\ngit@host.example:x.git\n'
    assert shell(tmp_path, "git config -f out remote.o.fetch") == "+refs/*:refs/r/*\n"
