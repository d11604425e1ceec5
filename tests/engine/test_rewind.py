"""Going back: files that tools changed are put back, sessions are forked, and nothing is taken out
of the journal.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, Permissions, Storage, tool
from ferrule.cli.exit_codes import run as ferrule
from ferrule.core.errors import ConfigError
from ferrule.core.events import DirectCall, FilesSeen, Noticed, ToolAnswered
from ferrule.core.identity import Identity
from ferrule.core.messages import ToolMessage
from ferrule.engine.replay.replay import replay
from ferrule.engine.rewind import file_copies, states
from ferrule.engine.rewind.rewind import RewindPoint, fork, plan_rewind, restore_files
from ferrule.engine.rewind.states import NOTHING, read_state
from ferrule.models.scripted import Scripted, calls, says
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage import paths
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.files import tools

Made = tuple[str, dict[str, object]]


async def worked(
    folder: Path, runs: list[list[Made]]
) -> tuple[SqliteJournal, FileArtifactStore, str]:
    """A session in which each run makes these calls, one after another."""
    folder.mkdir(parents=True, exist_ok=True)
    script = [step for made in runs for step in (*(calls(call) for call in made), says("done"))]
    journal, store = (
        SqliteJournal(folder.parent / "journal.db"),
        FileArtifactStore(folder.parent / "artifacts"),
    )
    agent = Agent(
        Scripted(script),
        tools.TOOLS,
        workspace=folder,
        permissions=Permissions(allow=["Read(**)", "Edit(**)"]),
        storage=Storage(journal=journal, artifacts=store, user="me"),
    )
    session = agent.session()
    for _ in runs:
        result = await session.run("go")
        assert all(one.success for one in result.results), result.results
    await session.close()
    return journal, store, session.id


def content(folder: Path) -> dict[str, str | None]:
    """All that is there: text of files, None for folders."""
    found = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_text() if p.is_file() else None for p in found}


def back(
    folder: Path,
    journal: SqliteJournal,
    store: FileArtifactStore,
    session: str,
    run: int,
    **how: bool,
):
    point = plan_rewind(journal.records(session), run)
    return restore_files(point, Workspace(folder), store, Scope("local", "me", session), **how)


async def test_files_are_put_back_to_the_end_of_any_run(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "old.txt").write_text("as it was\n")
    (folder / "gone").mkdir()
    (folder / "gone" / "deep.txt").write_text("deep\n")
    states = [content(folder)]
    runs: list[list[Made]] = [
        [
            ("write_file", {"path": "new/a.txt", "content": "one\n"}),
            ("read_file", {"path": "old.txt"}),
        ],
        [("edit_file", {"path": "old.txt", "old_string": "as it", "new_string": "was it"})],
        [
            ("delete_path", {"path": "gone", "recursive": True}),
            ("move_path", {"source": "new/a.txt", "target": "b.txt"}),
            ("write_file", {"path": "b.txt", "content": "two\n"}),
        ],
    ]
    journal, store, session = await worked(folder, runs)
    final = content(folder)
    assert final != states[0]

    done = back(folder, journal, store, session, 2)
    assert not done.left_alone
    assert content(folder) == {
        "gone": None,
        "gone/deep.txt": "deep\n",
        "new": None,
        "new/a.txt": "one\n",
        "old.txt": "was it was\n",
    }
    done = back(folder, journal, store, session, 0)
    assert content(folder) == {"gone": None, "gone/deep.txt": "deep\n", "old.txt": "as it was\n"}


async def test_what_somebody_else_changed_since_is_left_alone_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    journal, store, session = await worked(
        folder, [[("write_file", {"path": "a.txt", "content": "one\n"})]]
    )
    (folder / "a.txt").write_text("mine\n")
    done = back(folder, journal, store, session, 0)
    assert list(done.left_alone) == ["a.txt"]
    assert (folder / "a.txt").read_text() == "mine\n"
    assert back(folder, journal, store, session, 0, force=True, dry=True).restored == ["a.txt"]
    assert (folder / "a.txt").exists()
    assert back(folder, journal, store, session, 0, force=True).restored == ["a.txt"]
    assert not (folder / "a.txt").exists()


async def test_a_fork_goes_on_from_its_point_and_leaves_the_session_as_it_was(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "work"
    runs: list[list[Made]] = [
        [("write_file", {"path": "a.txt", "content": f"{n}\n"}), ("read_file", {"path": "a.txt"})]
        for n in range(3)
    ]
    journal, store, session = await worked(folder, runs)
    before = [record.hash for record in journal.records(session)]
    name = fork(journal, session, 2, store)
    assert [record.hash for record in journal.records(session)] == before
    journal.verify(name)
    assert replay(journal.records(name)).same
    assert replay(journal.records(name)).runs == 2
    agent = Agent(
        Scripted([says("went on")]),
        tools.TOOLS,
        workspace=folder,
        storage=Storage(journal=journal, artifacts=store, user="me"),
    )
    again = agent.resume(name)
    assert (await again.run("and now?")).text == "went on"
    await again.close()
    assert sum(isinstance(message, ToolMessage) for message in again.driver.machine.history) == 4
    with pytest.raises(ConfigError, match="no finished run 9"):
        fork(journal, session, 9)
    with pytest.raises(ConfigError, match="no finished run 9"):
        plan_rewind(journal.records(session), 9)


async def test_a_link_that_took_a_files_place_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "ä b.txt").write_text("before\n")
    (folder / "d").mkdir()
    (folder / "d" / "c.txt").write_text("before\n")
    runs: list[list[Made]] = [
        [("write_file", {"path": path, "content": "after\n"}) for path in ("ä b.txt", "d/c.txt")]
    ]
    journal, store, session = await worked(folder, runs)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.txt").write_text("mine\n")
    (folder / "ä b.txt").unlink()
    (folder / "ä b.txt").symlink_to(outside / "c.txt")
    shutil.rmtree(folder / "d")
    (folder / "d").symlink_to(outside)
    done = back(folder, journal, store, session, 0, force=True)
    assert set(done.left_alone) == {"ä b.txt", "d", "d/c.txt"}
    assert (outside / "c.txt").read_text() == "mine\n"
    assert (folder / "d").is_symlink()


REPLACED: dict[str, str] = {
    "folder by a link": "rm -r d; ln -s ../outside d",
    "folder by a link, itself elsewhere": "mv d e; ln -s ../outside d",
    "folder by a link to the workspace": "mv d e; ln -s e d; rm e/c.txt; ln ../outside/c.txt e/c.txt",
    "file by a hard link": "rm d/c.txt; ln ../outside/c.txt d/c.txt",
    "file by a link": "rm d/c.txt; ln -s ../../outside/c.txt d/c.txt",
    "file by a pipe": "rm d/c.txt; mkfifo d/c.txt",
    "file by a folder with a link": "rm d/c.txt; mkdir d/c.txt; ln -s ../../../outside d/c.txt/x",
    "new file by a hard link": "rm d/new.txt; ln ../outside/c.txt d/new.txt",
    "new folder by a link": "rm -r n; ln -s ../outside n",
}
"""What a command leaves where files are to be put back."""


@pytest.mark.parametrize("script", REPLACED.values(), ids=REPLACED)
async def test_what_took_the_place_of_a_file_or_folder_leads_nowhere(
    script: str, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    (folder / "d").mkdir(parents=True)
    (folder / "d/c.txt").write_text("before\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.txt").write_text("after\n")
    runs: list[list[Made]] = [
        [
            ("write_file", {"path": path, "content": "after\n"})
            for path in ("d/c.txt", "d/new.txt", "n/c.txt")
        ]
    ]
    journal, store, session = await worked(folder, runs)
    subprocess.run(["sh", "-c", script], cwd=folder, check=True)
    back(folder, journal, store, session, 0, force=True)
    assert content(outside) == {"c.txt": "after\n"}


def test_names_that_no_tool_may_touch_are_never_put_back_whatever_a_journal_says(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    names: tuple[str, ...] = (".git/config", ".env", "key.pem")
    for name in names:
        (folder / name).write_text("mine\n")
    (tmp_path / "out.txt").write_text("mine\n")
    store, scope = FileArtifactStore(tmp_path / "artifacts"), Scope("local", "me", "s")
    kept = store.put(scope, [b"theirs"])
    for wanted in (NOTHING, f"file:{kept.sha256}", "dir"):
        paths = dict.fromkeys((*names, "../out.txt"), wanted)
        point = RewindPoint(paths, {path: {"other", NOTHING} for path in paths}, 0)
        for dry in (True, False):
            done = restore_files(point, Workspace(folder), store, scope, force=True, dry=dry)
            assert done.restored == []
    assert {(folder / name).read_text() for name in names} == {"mine\n"}
    assert (tmp_path / "out.txt").read_text() == "mine\n"


async def test_what_is_not_kept_any_more_is_left_alone_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("before\n")
    journal, store, session = await worked(
        folder, [[("write_file", {"path": "a.txt", "content": "after\n"})]]
    )
    shutil.rmtree(tmp_path / "artifacts")
    done = back(folder, journal, store, session, 0)
    assert done.left_alone == {"a.txt": "its content is no longer kept"}
    assert (folder / "a.txt").read_text() == "after\n"


async def test_a_file_too_large_to_be_compared_is_not_removed_unless_a_person_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "MAX_FILE_SIZE", 8)
    folder = tmp_path / "work"
    journal, store, session = await worked(
        folder, [[("write_file", {"path": "a.txt", "content": "large enough\n"})]]
    )
    (folder / "a.txt").write_text("LARGE ENOUGH\n")
    assert "too large" in back(folder, journal, store, session, 0).left_alone["a.txt"]
    assert back(folder, journal, store, session, 0, force=True).restored == ["a.txt"]


def test_what_may_not_be_looked_at_is_not_taken_for_missing(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "elsewhere.txt").write_text("of somebody else")
    os.link(tmp_path / "elsewhere.txt", folder / "linked.txt")
    workspace = Workspace(folder)
    assert read_state(workspace, "linked.txt", None) == "other"
    assert read_state(workspace, "nothing.txt", None) == NOTHING
    assert read_state(workspace, "nothing/below.txt", None) == NOTHING


async def test_more_paths_than_are_kept_are_told_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_copies, "MAX_PATHS", 3)
    folder = tmp_path / "work"
    (folder / "d").mkdir(parents=True)
    for n in range(5):
        (folder / "d" / f"{n}.txt").write_text("text\n")
    journal, _, session = await worked(
        folder, [[("delete_path", {"path": "d", "recursive": True})]]
    )
    events = [record.event for record in journal.records(session)]
    (told,) = [event for event in events if isinstance(event, Noticed)]
    assert "more than 3 paths" in told.text
    assert [len(event.paths) for event in events if isinstance(event, FilesSeen)] == [3, 3]
    assert plan_rewind(journal.records(session), 0).uncovered == 1


class Yes:
    """A person who says yes."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer("once", by="a person")


async def test_calls_whose_changes_nobody_kept_are_counted_also_where_a_person_approved_them() -> (
    None
):
    @tool(side_effect="execute")
    def command() -> str:
        """Run something."""
        return "ran"

    @tool(side_effect="write")
    def unseen() -> str:
        """Write somewhere that no parameter names."""
        return "wrote"

    journal = SqliteJournal(":memory:")
    script = Scripted(
        [calls(("command", {}), ("unseen", {})), says("done"), calls(("command", {})), says("!")]
    )
    session = Agent(
        script,
        [command, unseen],
        permissions=Permissions(approver=Yes()),
        storage=Storage(journal=journal),
    ).session()
    await session.run("go")
    await session.run("again")
    await session.close()
    uncovered = [plan_rewind(journal.records(session.id), run).uncovered for run in range(3)]
    assert uncovered == [3, 1, 0]


async def test_a_fork_of_a_session_in_use_has_no_call_that_is_still_under_way() -> None:
    @tool(side_effect="external")
    def send() -> str:
        """Send."""
        return "sent"

    journal = SqliteJournal(":memory:")
    session = Agent(
        Scripted([says("hello")]),
        [send],
        permissions=Permissions(allow=["send"]),
        storage=Storage(journal=journal, user="me"),
    ).session()
    await session.run("hello?")
    await session.call("send")
    await session.call("send")
    await session.close()
    records = list(journal.records(session.id))
    # As it is while the second call runs.
    at = max(n for n, record in enumerate(records) if isinstance(record.event, ToolAnswered))
    busy = SqliteJournal(":memory:")
    for record in records[:at]:
        busy.append(
            session.id,
            record.run,
            [record.event],
            identity=Identity("local", "me", session.id, "r"),
        )
    forked = [record.event for record in busy.records(fork(busy, session.id, 1))]
    assert sum(isinstance(event, DirectCall) for event in forked) == 1
    assert sum(isinstance(event, ToolAnswered) for event in forked) == 1
    name = fork(busy, fork(busy, session.id, 1), 1)
    assert replay(busy.records(name)).same
    assert [record.event for record in busy.records(name)][1:] == forked[1:]


PATHS = st.sampled_from(["a.txt", "b.txt", "d/c.txt", "d/e/f.txt"])
CALLS = st.one_of(
    st.tuples(
        st.just("write_file"),
        st.fixed_dictionaries({"path": PATHS, "content": st.sampled_from(["x\n", "y\n", "z\n"])}),
    ),
    st.tuples(
        st.just("delete_path"),
        st.fixed_dictionaries(
            {"path": st.sampled_from(["a.txt", "b.txt", "d"]), "recursive": st.just(True)}
        ),
    ),
    st.tuples(
        st.just("move_path"),
        st.fixed_dictionaries({"source": PATHS, "target": PATHS, "overwrite": st.just(True)}),
    ),
)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_whatever_tools_did_to_files_can_be_undone_to_any_run(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import asyncio

    folder = tmp_path_factory.mktemp("rewind") / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("first\n")
    runs = data.draw(st.lists(st.lists(CALLS, max_size=3), min_size=1, max_size=3))
    seen = [content(folder)]
    script = [step for made in runs for step in (*(calls(call) for call in made), says("done"))]
    journal, store = (
        SqliteJournal(folder.parent / "journal.db"),
        FileArtifactStore(folder.parent / "artifacts"),
    )
    agent = Agent(
        Scripted(script),
        tools.TOOLS,
        workspace=folder,
        permissions=Permissions(allow=["Edit(**)"]),
        storage=Storage(journal=journal, artifacts=store, user="me"),
    )

    async def all_runs() -> str:
        session = agent.session()
        for _ in runs:
            await session.run("go")
            seen.append(content(folder))
        await session.close()
        return session.id

    session = asyncio.run(all_runs())
    to = data.draw(st.integers(0, len(runs)))
    done = back(folder, journal, store, session, to)
    assert not done.left_alone
    assert content(folder) == seen[to]
    journal.close()


def test_the_command_line_asks_before_it_puts_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = (tmp_path / "nothing").open("w+")
    monkeypatch.setattr(sys, "stdin", nothing)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("before\n")
    talk = tmp_path / "talk.yaml"
    steps = [
        {"call": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "after\n"}}]},
        {"say": "done"},
    ]
    talk.write_text(json.dumps(steps))
    assert (
        ferrule(
            [
                "run",
                "-m",
                f"scripted:{talk}",
                "-C",
                str(folder),
                "--allow",
                "Edit(**)",
                "--json",
                "go",
            ]
        )
        == 0
    )
    session = json.loads(capsys.readouterr().out)["session"]
    assert ferrule(["sessions", "rewind", session, "--run", "0", "--dry-run"]) == 0
    assert capsys.readouterr().out.split() == ["restore", "a.txt"]
    assert ferrule(["sessions", "rewind", session, "--run", "0", "--diff"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["-before", "+after"]
    assert ferrule(["sessions", "rewind", session, "--run", "0"]) == 7
    assert (folder / "a.txt").read_text() == "after\n"
    assert ferrule(["sessions", "rewind", session, "--run", "0", "--yes"]) == 0
    assert (folder / "a.txt").read_text() == "before\n"
    forked = capsys.readouterr().out.split()[-1]
    assert ferrule(["sessions", "fork", session]) == 0
    whole = capsys.readouterr().out.strip()
    assert ferrule(["sessions", "replay", session, forked, whole]) == 0
    assert ferrule(["sessions", "fork", session, "--run", "5"]) == 2
    nothing.close()


@pytest.fixture
def written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The id of a session of the command line whose one run overwrote `work/a.txt`."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("before\n")
    steps = [
        {"call": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "after\n"}}]},
        {"say": "done"},
    ]
    (tmp_path / "talk.yaml").write_text(json.dumps(steps))
    model = f"scripted:{tmp_path}/talk.yaml"
    assert (
        ferrule(["run", "-m", model, "-C", str(folder), "--allow", "Edit(**)", "--json", "go"]) == 0
    )
    return str(json.loads(capsys.readouterr().out)["session"])


def test_a_session_that_somebody_works_with_is_not_rewound(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rewind = ["sessions", "rewind", written, "--run", "0", "--yes"]
    with SqliteJournal(paths.default_journal()) as other:
        other.lease(written)
        assert ferrule(rewind) != 0
        assert "in use" in capsys.readouterr().err
        assert (tmp_path / "work" / "a.txt").read_text() == "after\n"
        assert len(other.sessions()) == 1
    assert ferrule(rewind) == 0
    assert (tmp_path / "work" / "a.txt").read_text() == "before\n"


def test_a_rewind_obeys_what_the_persons_settings_protect_by_now(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.config().mkdir(parents=True, exist_ok=True)
    (paths.config() / "ferrule.yaml").write_text("permissions:\n  deny: ['Edit(a.txt)']\n")
    assert ferrule(["sessions", "rewind", written, "--run", "0", "--yes", "--force"]) == 3
    assert "denied by the rule" in capsys.readouterr().out
    assert (tmp_path / "work" / "a.txt").read_text() == "after\n"


def test_a_rewind_writes_to_no_folder_that_a_link_leads_to_by_now(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("after\n")
    (tmp_path / "work").rename(tmp_path / "aside")
    (tmp_path / "work").symlink_to(other)
    assert ferrule(["sessions", "rewind", written, "--run", "0", "--yes", "--force"]) == 1
    assert "is, or lies behind, a link now" in capsys.readouterr().err
    assert (other / "a.txt").read_text() == "after\n"


def test_a_rewind_without_a_terminal_or_a_folder_does_nothing_and_says_why(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ferrule(["sessions", "rewind", written, "--run", "0"]) == 7
    shutil.rmtree(tmp_path / "work")
    assert ferrule(["sessions", "rewind", written, "--run", "0", "--yes"]) == 1
    assert "is missing" in capsys.readouterr().err
