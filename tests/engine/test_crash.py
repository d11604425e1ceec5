"""`kill -9` at each journal write: resume goes on, nothing finished runs again, unknown outcomes
are called unknown.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ferrule.cli.exit_codes import run as ferrule
from ferrule.core.events import CallStarted, ModelAnswered, RunFinished, ToolAnswered
from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, ToolMessage
from ferrule.engine.replay.replay import replay
from ferrule.storage.journal.sqlite import SqliteJournal

ROUNDS = 12
RULES = ("--allow", "Bash(./append.sh:*)", "--allow", "Edit(**)", "--allow", "Read(**)")
WRITES = 34
"""Before each question to the model and each effect (every third call only reads), what holds a
command, what files were, and the end.
"""
POINTS = [
    *(("before", n) for n in range(2, WRITES + 1)),
    *(("after", n) for n in range(1, WRITES + 1)),
    *(("inside", n) for n in (1, 2, 4, 6, 11, 16, 21, 26, 30, 34)),
    *(("effect", n) for n in range(1, ROUNDS + 1)),
]
if "FERRULE_KILL_POINTS" not in os.environ:
    # One of ten, some of each kind. `make lab NAME=crash` tries them all.
    POINTS = POINTS[::10]


def script() -> list[dict[str, object]]:
    """A model that appends a word, writes a file and reads one, in turn."""
    steps: list[dict[str, object]] = []
    for n in range(ROUNDS):
        calls = (
            {"tool": "run_command", "arguments": {"command": ["./append.sh", f"word{n}"]}},
            {"tool": "write_file", "arguments": {"path": f"file{n}.txt", "content": f"text {n}\n"}},
            {"tool": "read_file", "arguments": {"path": f"file{n - 1}.txt"}},
        )
        steps.append({"call": [{**calls[n % 3], "id": f"call_of_round_{n:04d}"}]})
    return [*steps, {"say": "all done"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    made = tmp_path / "work"
    made.mkdir()
    program = made / "append.sh"
    program.write_text('#!/bin/sh\necho "$1" >> effects.txt\n')
    program.chmod(0o755)
    (tmp_path / "talk.yaml").write_text(json.dumps(script()))
    (tmp_path / "end.yaml").write_text(json.dumps([{"say": "went on"}]))
    return made


def crash(folder: Path, where: str, at: int) -> None:
    """Run until it is killed there."""
    arguments = [
        "run",
        "-m",
        f"scripted:{folder.parent}/talk.yaml",
        "-C",
        str(folder),
        "--max-turns",
        "50",
        *RULES,
        "go",
    ]
    program = Path(__file__).with_name("crashing.py")
    done = subprocess.run(
        [sys.executable, str(program), where, str(at), *arguments],
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def open_journal() -> SqliteJournal:
    return SqliteJournal(Path(os.environ["FERRULE_STATE"]) / "journal.db")


def effects(folder: Path) -> Counter[str]:
    file = folder / "effects.txt"
    return Counter(file.read_text().split() if file.exists() else ())


@pytest.mark.proves("crash.resume", "crash.no-double", "crash.unknown-is-said")
@pytest.mark.parametrize(("where", "at"), POINTS)
def test_a_killed_run_resumes_without_repeating_or_hiding_an_effect(
    folder: Path, where: str, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    crash(folder, where, at)
    journal = open_journal()
    found = journal.sessions()
    if not found:
        assert (where, at) in (("before", 1), ("inside", 1)), "a session was lost"
        return
    session = found[0].session
    events = [record.event for record in journal.records(session)]
    journal.close()
    started = {e.call_id for e in events if isinstance(e, CallStarted)}
    answered = {e.result.call_id for e in events if isinstance(e, ToolAnswered)}
    before = effects(folder)

    code = ferrule(
        [
            "sessions",
            "resume",
            session[:12],
            "-m",
            f"scripted:{folder.parent}/end.yaml",
            "-C",
            str(folder),
            *RULES,
        ]
    )

    assert code in (0, 3), capsys.readouterr().err
    after = effects(folder)
    assert all(count == 1 for count in after.values()), after
    assert not before - after
    journal = open_journal()
    journal.verify(session)
    assert replay(journal.records(session)).differences == ()
    later = [record.event for record in journal.records(session)]
    assert [e.stop for e in later if isinstance(e, RunFinished)] == ["done"]
    machine = Machine()
    machine.rebuild(later)
    told = {m.call_id: m for m in machine.history if isinstance(m, ToolMessage)}
    asked = [c.id for m in machine.history if isinstance(m, AssistantMessage) for c in m.calls]
    assert asked == list(told)
    for call in (c for e in events if isinstance(e, ModelAnswered) for c in e.calls):
        if call.id in started and call.id not in answered and call.tool != "read_file":
            assert "outcome unknown" in told[call.id].text
        else:
            assert told[call.id].success, told[call.id].text
    again = Counter(e.call_id for e in later if isinstance(e, CallStarted))
    reads = {
        c.id
        for e in later
        if isinstance(e, ModelAnswered)
        for c in e.calls
        if c.tool == "read_file"
    }
    assert all(again[call_id] == (call_id not in reads) for call_id in answered)
    results = Counter(e.result.call_id for e in later if isinstance(e, ToolAnswered))
    assert all(results[call_id] == 1 for call_id in answered)
    journal.close()


def test_the_script_itself_finishes_without_a_crash(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ferrule(
        [
            "run",
            "-m",
            f"scripted:{folder.parent}/talk.yaml",
            "-C",
            str(folder),
            "--max-turns",
            "50",
            *RULES,
            "go",
        ]
    )
    assert code == 0
    assert "all done" in capsys.readouterr().out
    assert effects(folder) == Counter(f"word{n}" for n in range(0, ROUNDS, 3))
