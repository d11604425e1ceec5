"""`ferrule sessions replay|bundle|import`: recorded sessions again, from the command line."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

import pytest

from ferrule.cli.exit_codes import run as ferrule
from ferrule.runtime.assemble import open_journal
from ferrule.storage import paths
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import Scope
from media_samples import make_png

TALK = [
    {"call": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "one\n"}}]},
    {"call": [{"tool": "read_file", "arguments": {"path": "a.txt"}}]},
    {"say": "written and read"},
]

RULES = ("--allow", "Edit(**)", "--allow", "Read(**)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "talk.yaml").write_text(json.dumps(TALK))
    return work


@pytest.fixture
def session(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The id of a recorded session."""
    model = f"scripted:{folder.parent}/talk.yaml"
    assert ferrule(["run", "-m", model, "-C", str(folder), *RULES, "--json", "go"]) == 0
    return str(json.loads(capsys.readouterr().out)["session"])


def test_a_recorded_session_is_replayed_without_its_folder_or_model(
    folder: Path, session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.txt").unlink()
    (folder.parent / "talk.yaml").unlink()
    assert ferrule(["sessions", "replay", session[:8]]) == 0
    assert "1 runs: the same, byte for byte" in capsys.readouterr().out
    assert ferrule(["sessions", "replay", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["same"] is True
    assert not (folder / "a.txt").exists()


def test_a_bundle_goes_to_another_state_folder_and_back(
    folder: Path,
    session: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(tmp_path / "s.ferrule")
    assert ferrule(["sessions", "bundle", session, "-o", file]) == 0
    assert ferrule(["sessions", "bundle", session, "-o", file]) == 1
    assert ferrule(["sessions", "replay", file]) == 0
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "elsewhere"))
    capsys.readouterr()
    assert ferrule(["sessions", "import", file]) == 0
    assert capsys.readouterr().out.split() == [session]
    assert ferrule(["sessions", "replay", session]) == 0
    assert ferrule(["sessions", "import", file]) == 1
    assert "already" in capsys.readouterr().err
    Path(file).write_bytes(b"PK\x03\x04 no")
    assert ferrule(["sessions", "import", file]) == 1


def test_a_bundle_leaves_the_bytes_out_on_demand(session: str, tmp_path: Path) -> None:
    sizes: list[list[str]] = []
    for number, more in enumerate(([], ["--no-artifacts"])):
        file = tmp_path / f"{number}.ferrule"
        record = next(iter(open_journal().records(session)))
        scope = Scope(record.tenant, record.user, session)
        FileArtifactStore(paths.state() / "artifacts").put(scope, (make_png(),), mime="image/png")
        assert ferrule(["sessions", "bundle", session, "-o", str(file), *more]) == 0
        with zipfile.ZipFile(file) as bundle:
            sizes.append([name for name in bundle.namelist() if name.startswith("artifacts/")])
    assert [len(one) for one in sizes] == [1, 0]


def test_a_stricter_settings_file_names_the_calls_it_would_have_stopped(
    folder: Path, session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = tmp_path / "strict.yaml"
    strict.write_text("permissions:\n  allow: ['Read(**)']\n  deny: ['Edit(*.txt)']\n")
    assert ferrule(["sessions", "replay", "--all", "--policy", str(strict), "-C", str(folder)]) == 4
    shown = capsys.readouterr()
    assert shown.out.startswith("deny") and "write_file" in shown.out
    assert "1 would be refused" in shown.err
    same = tmp_path / "same.yaml"
    same.write_text("permissions:\n  allow: ['Edit(**)', 'Read(**)']\n")
    assert ferrule(["sessions", "replay", session, "--policy", str(same), "-C", str(folder)]) == 0


def test_another_model_or_the_tools_of_today_work_a_recorded_session_again(
    folder: Path, session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = folder.parent / "other.yaml"
    other.write_text(json.dumps([TALK[1], {"say": "only read"}]))
    (folder / "a.txt").unlink()
    code = ferrule(["sessions", "replay", session, "-m", f"scripted:{other}", "-C", str(folder)])
    shown = capsys.readouterr().out
    assert code == 1
    assert "only read" in shown and "written and read" in shown
    assert not (folder / "a.txt").exists()
    assert ferrule(["sessions", "replay", session, "--live", "-C", str(folder), *RULES]) == 0
    assert (folder / "a.txt").read_text() == "one\n"


def test_what_is_to_be_replayed_must_be_said_and_only_one_way(
    session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ferrule(["sessions", "replay"]) == 2
    assert ferrule(["sessions", "replay", session, "--live", "-m", "scripted:x"]) == 2
    assert ferrule(["sessions", "replay", "nobody"]) == 2


def test_what_was_archived_is_replayed_from_its_file_and_its_record_is_no_session(
    session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "old.jsonl.gz")
    assert ferrule(["sessions", "archive", session, "-o", file]) == 0
    capsys.readouterr()
    assert ferrule(["sessions", "replay", file]) == 0
    assert "the same, byte for byte" in capsys.readouterr().out
    assert ferrule(["sessions", "replay", "--all"]) == 0
    assert "0 sessions replayed" in capsys.readouterr().err
    assert ferrule(["sessions", "import", file]) == 0
    assert ferrule(["sessions", "replay", session]) == 0


def test_files_that_cannot_be_written_read_or_judged_are_named_and_are_no_defect(
    session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ferrule(["sessions", "bundle", session, "-o", str(tmp_path / "no" / "s.ferrule")]) == 1
    assert "nothing was written" in capsys.readouterr().err
    (tmp_path / "no.jsonl").write_bytes(b"\xff\xfe no text")
    assert ferrule(["sessions", "replay", str(tmp_path / "no.jsonl")]) == 1
    assert "defect" not in capsys.readouterr().err
    assert ferrule(["sessions", "import", str(tmp_path / "no.jsonl")]) == 1
    assert "defect" not in capsys.readouterr().err
    file, rules = str(tmp_path / "s.ferrule"), tmp_path / "rules.yaml"
    rules.write_text("permissions: {}\n")
    assert ferrule(["sessions", "bundle", session, "-o", file]) == 0
    assert ferrule(["sessions", "replay", file, "--policy", str(rules)]) == 2
    assert "ferrule sessions import" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("sessions", "export", "<S>", "-o", "<F>"),
        ("sessions", "bundle", "<S>", "-o", "<F>"),
        ("sessions", "to-case", "<S>", "-o", "<F>"),
        ("sessions", "archive", "<S>", "-o", "<F>"),
        ("audit", "export", "<S>", "-o", "<F>"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["file", "folder/new"])
def test_nothing_is_written_through_a_link_that_a_command_may_have_made(
    command: tuple[str, ...],
    name: str,
    folder: Path,
    session: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = folder.parent / "home"
    home.mkdir()
    (home / ".bashrc").write_text("mine\n")
    (folder / "file").symlink_to(home / ".bashrc")
    (folder / "folder").symlink_to(home)
    monkeypatch.chdir(folder)
    words = [word.replace("<S>", session).replace("<F>", name) for word in command]
    assert ferrule(words) != 0
    assert "is a link, which a command may have made" in capsys.readouterr().err or (
        # A folder is named, and click looks at its kind first.
        words[1] == "to-case"
    )
    assert (home / ".bashrc").read_text() == "mine\n"
    assert [place.name for place in home.iterdir()] == [".bashrc"]
