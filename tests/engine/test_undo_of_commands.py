"""What commands changed is put back byte for byte, and what they did not change is left alone."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule import Agent, Permissions, Storage, tool
from ferrule.core.events import FilesSeen, Noticed
from ferrule.engine.rewind import snapshots, workspace_scan
from ferrule.engine.session import Session
from ferrule.models.scripted import Scripted, calls, says
from ferrule.plugins import Parts
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.commands.policy import CommandPolicy
from ferrule.toolkits.commands.run_command_tool import run_command
from ferrule.toolkits.files import tools as files
from ferrule.tools.definition import Tool, Touch

Tree = dict[str, tuple[bytes | None, bool]]


def read_tree(folder: Path) -> Tree:
    """All that is there: the bytes of files and whether they can be run; None for folders."""
    return {
        str(path.relative_to(folder)): (
            (path.read_bytes(), bool(path.stat().st_mode & 0o111))
            if path.is_file()
            else (None, True)
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "src" / "deep").mkdir(parents=True)
    (work / "src" / "a.py").write_bytes(b"x=1\r\n\xff\n")
    (work / "src" / "deep" / "b.txt").write_bytes(b"b\n")
    (work / "run.sh").write_bytes(b"#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "empty").mkdir()
    return work


@tool(side_effect="execute", risk="high")
def plain_shell(command: str, background: bool = False) -> str:
    """Run a command without a sandbox."""
    done = subprocess.run(["bash", "-c", command], cwd=FOLDER[0], capture_output=True, check=False)
    return done.stdout.decode(errors="replace")


FOLDER: list[Path] = []
SHELL = replace(plain_shell, touches={"command": Touch("command")})


def make_session(folder: Path, steps: list[Any], *tools: Tool) -> Session:
    FOLDER[:] = [folder]
    agent = Agent(
        Scripted(steps),
        [*(tools or (SHELL,)), *files.TOOLS],
        workspace=folder,
        permissions=Permissions(mode="bypassPermissions"),
        plugins=[Parts(resources=[CommandPolicy(shell_allowed=True)])],
        storage=Storage(
            journal=SqliteJournal(folder.parent / "journal.db"),
            artifacts=FileArtifactStore(folder.parent / "artifacts"),
        ),
    )
    return agent.session()


async def run_commands(folder: Path, *commands: str) -> Session:
    session = make_session(
        folder, [*(calls(("plain_shell", {"command": one})) for one in commands), says("done")]
    )
    await session.run("go")
    return session


def list_seen(session: Session) -> list[FilesSeen]:
    records = session.driver.log.journal.records(session.id)
    return [one.event for one in records if isinstance(one.event, FilesSeen)]


async def test_a_run_that_edited_deleted_renamed_formatted_and_ran_a_script_is_undone(
    folder: Path,
) -> None:
    (folder / "tidy.sh").write_text("for f in src/*.py; do echo '# seen' >> $f; done\n")
    (folder / "src" / "wide.py").write_text("def f( a,b ):\n  return {'a':a,\n 'b':b}\n")
    before = read_tree(folder)
    python = shlex.quote(sys.executable)
    formatter = f"{python} -m ruff format --quiet --isolated --no-cache src/wide.py"
    command = (
        f"{formatter}; chmod +x src/wide.py; sh tidy.sh; rm src/deep/b.txt; rmdir src/deep empty; mv run.sh go.sh; chmod -x go.sh; "
        "mkdir -p new/below; echo n > new/below/n.txt; chmod +x src/a.py; printf '\\0' >> tidy.sh"
    )
    steps = [
        calls(("write_file", {"path": "notes.md", "content": "n\n"})),
        calls(("plain_shell", {"command": command})),
        calls(("edit_file", {"path": "notes.md", "old_string": "n", "new_string": "m"})),
        calls(("plain_shell", {"command": "rm -r new; cp notes.md src/copy.md"})),
        says("done"),
    ]
    session = make_session(folder, steps)
    await session.run("go")
    assert read_tree(folder) != before
    diff, uncovered = session.diff_files()
    assert uncovered == 0
    assert {"+++ b/notes.md", "+++ b/src/copy.md", "+def f(a, b):"} <= set(diff)
    assert "src/wide.py: can be run" in diff
    report = session.rewind(0)
    assert report.left_alone == {}
    assert read_tree(folder) == before


async def test_the_sandboxed_command_is_covered_too(folder: Path) -> None:
    before = read_tree(folder)
    command = "rm src/a.py; echo two > src/deep/b.txt"
    steps = [calls(("run_command", {"command": command})), says("done")]
    session = make_session(folder, steps, run_command)
    result = await session.run("go")
    assert result.results[0].success, result.results
    assert not (folder / "src" / "a.py").exists()
    session.rewind(0)
    assert read_tree(folder) == before
    await session.close()


OPERATIONS = st.lists(
    st.sampled_from(
        [
            "echo one > src/a.py",
            "echo one >> src/deep/b.txt",
            "printf '\\0\\377' > c.bin",
            "rm -f src/a.py",
            "rm -rf src/deep",
            "rm -rf src",
            "mv src lib",
            "mv lib src",
            "mv src/a.py a.py",
            "mkdir -p src/deep",
            "rmdir empty",
            "touch empty",
            "chmod +x src/deep/b.txt",
            "chmod -x run.sh",
            "cp -r src src2",
            "echo y > src2/a.py; touch -r run.sh src2/a.py",
            "sed -i s/b/c/ src/deep/b.txt",
            "rm run.sh; mkdir run.sh",
            "true; touch src/a.py",
        ]
    ),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=OPERATIONS, second=OPERATIONS)
def test_any_run_of_commands_is_undone(
    first: list[str], second: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("any") / "work"
    (place / "src" / "deep").mkdir(parents=True)
    (place / "src" / "a.py").write_bytes(b"a\n")
    (place / "src" / "deep" / "b.txt").write_bytes(b"b\n")
    (place / "run.sh").write_bytes(b"r\n")
    (place / "run.sh").chmod(0o755)
    (place / "empty").mkdir()
    before = read_tree(place)

    async def work() -> tuple[Session, Tree]:
        made = [
            [calls(("plain_shell", {"command": one})) for one in run] for run in (first, second)
        ]
        session = make_session(place, [*made[0], says("one"), *made[1], says("two")])
        await session.run("go")
        between = read_tree(place)
        await session.run("on")
        return session, between

    session, between = asyncio.run(work())
    assert session.rewind(1).left_alone == {}
    assert read_tree(place) == between
    assert session.rewind(0).left_alone == {}
    assert read_tree(place) == before


async def test_commands_are_undone_where_no_cache_can_be_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a home folder that is read-only."""
    monkeypatch.setenv("FERRULE_CACHE", str(folder / "run.sh" / "cache"))
    before = read_tree(folder)
    session = await run_commands(folder, "rm src/a.py; echo two > src/deep/b.txt")
    assert read_tree(folder) != before
    assert session.rewind(0).left_alone == {}
    assert read_tree(folder) == before


async def test_a_change_of_the_person_between_two_commands_is_not_the_commands(
    folder: Path,
) -> None:
    session = make_session(folder, [says("done")])
    await session.run("go")
    await session.call("plain_shell", command="rm src/deep/b.txt")
    (folder / "src" / "a.py").write_text("the person's\n")
    await session.call("plain_shell", command="echo z > z.txt")
    changed = {path for event in list_seen(session) for path in event.paths}
    assert changed == {"src/deep/b.txt", "z.txt"}
    session.rewind(0)
    assert (folder / "src" / "a.py").read_text() == "the person's\n"
    assert not (folder / "z.txt").exists()


async def test_commands_at_the_same_time_share_the_state_before_the_first(folder: Path) -> None:
    """The second begins after the first has changed a file, and ends before it."""
    before = read_tree(folder)
    changed = asyncio.Event()
    ended = asyncio.Event()

    @tool(side_effect="execute", risk="high")
    async def first() -> None:
        """Change a file, and end last."""
        (folder / "src" / "a.py").write_text("1")
        changed.set()
        await ended.wait()
        (folder / "src" / "a.py").write_text("2")

    @tool(side_effect="execute", risk="high")
    async def second() -> None:
        """Change a file meanwhile."""
        (folder / "copy.py").write_text("c")

    session = make_session(folder, [says("done")], first, second)
    await session.run("go")
    running = asyncio.create_task(session.call("first"))
    await changed.wait()
    assert (await session.call("second")).success
    ended.set()
    assert (await running).success
    assert session.rewind(0).left_alone == {}
    assert read_tree(folder) == before


@pytest.mark.parametrize(
    "command",
    [
        "ls -la src; cat run.sh | head -1",
        "cat run.sh > b.txt",
        "sort -o run.sh run.sh",
        "echo $(rm run.sh)",
        "A=1 ls",
    ],
)
async def test_what_only_reads_takes_no_snapshot_and_is_covered(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    real = snapshots.CommandSnapshots._take

    def take(self: Any) -> None:
        taken.append("taken")
        real(self)

    monkeypatch.setattr(snapshots.CommandSnapshots, "_take", take)
    before = read_tree(folder)
    session = await run_commands(folder, command)
    assert session.diff_files()[1] == 0
    assert bool(taken) == (not command.startswith("ls"))
    session.rewind(0)
    assert read_tree(folder) == before


async def test_what_a_snapshot_leaves_out_is_not_touched(folder: Path) -> None:
    (folder / ".gitignore").write_text("build/\nlocal.db\n")
    for name in ("build/o.txt", "node_modules/p/i.js", ".git/config", "local.db", ".env"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("one\n")
    names = "build/o.txt node_modules/p/i.js .git/config local.db .env"
    (folder / "change.sh").write_text(f"for f in {names}; do echo two > $f; done")
    session = await run_commands(folder, "sh change.sh")
    report = session.rewind(0)
    assert report.restored == ["local.db"]
    assert list(report.left_alone) == []
    assert (folder / "build" / "o.txt").read_text() == "two\n"
    assert (folder / ".env").read_text() == "two\n"
    changed = {path for event in list_seen(session) for path in event.paths}
    assert not any(path.startswith((".git/", "node_modules", "build")) for path in changed)


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [("MAX_ENTRIES", 3, "more than 3 names"), ("MAX_BYTES", 4, "more than 0 MiB")],
)
async def test_of_a_workspace_that_is_too_large_there_is_no_snapshot_and_that_is_said_once(
    bound: str, value: int, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = workspace_scan if bound == "MAX_ENTRIES" else snapshots
    monkeypatch.setattr(module, bound, value)
    session = await run_commands(folder, "rm run.sh", "rm src/a.py")
    records = session.driver.log.journal.records(session.id)
    [notice] = [
        one.event
        for one in records
        if isinstance(one.event, Noticed) and one.event.topic == "copies"
    ]
    assert said in notice.text
    assert session.diff_files() == ([], 3)


async def test_a_command_in_the_background_is_counted_as_not_covered(folder: Path) -> None:
    steps = [
        calls(("plain_shell", {"command": "rm run.sh", "background": True})),
        says("done"),
    ]
    session = make_session(folder, steps)
    await session.run("go")
    assert session.diff_files() == ([], 1)


def test_the_bounds_of_a_snapshot() -> None:
    assert (workspace_scan.MAX_ENTRIES, snapshots.MAX_BYTES, snapshots.MAX_CHANGES) == (
        20_000,
        268_435_456,
        2_000,
    )


async def test_copies_have_no_name_and_end_with_the_session(folder: Path) -> None:
    session = await run_commands(folder, "rm run.sh")
    copies = session.driver.dispatcher.file_copies
    assert copies is not None and copies._snapshots is not None
    place = Path(f"/proc/self/fd/{copies._snapshots._copies}")
    assert place.readlink().name.endswith("(deleted)")
    await session.close()
    assert copies._snapshots._copies == -1
