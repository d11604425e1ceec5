"""Kills a `ferrule run` between two of its system calls, resumes it, and says what became of its
effects. Not a test.

    killing.py SEED FIRST LAST

`FIRST` to `LAST` are numbers of points; where a point lies is decided by the seed and its number:
one in ten anywhere in the run, the others after the journal was opened. A line of JSON for each:
`{"point", "stop", "of", "killed", "state", "problems", "unknown"}`; `stop` is the system-call stop
(entry or exit) at which all threads of the run were killed, `of` how many a run has when nothing
kills it.

The run is a child that was forked once everything was imported, and is traced with ptrace(2)
(PTRACE_SEIZE,
PTRACE_O_TRACECLONE: also its threads), so that a point can lie between any two system calls of it.
Its commands run in processes of the sandbox, which are not traced: they live on for a moment, as
they would.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from ferrule.cli.exit_codes import run as ferrule
from ferrule.core.events import CallStarted, ModelAnswered, RunFinished, ToolAnswered
from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, ToolMessage
from ferrule.engine.replay.replay import replay
from ferrule.storage.journal.sqlite import SqliteJournal

SEIZE, INTERRUPT, SYSCALL, LISTEN = 0x4206, 0x4207, 24, 0x4208
OPTIONS = 0x1 | 0x8 | 0x100000
"""PTRACE_O_TRACESYSGOOD, PTRACE_O_TRACECLONE, PTRACE_O_EXITKILL."""
WALL = 0x40000000
RULES = ("--allow", "Bash(./append.sh:*)", "--allow", "Edit(**)", "--allow", "Read(**)")
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def talk() -> list[dict[str, object]]:
    """Effects one after another, then three in one answer."""

    def append(n: int) -> dict[str, object]:
        return {
            "tool": "run_command",
            "arguments": {"command": ["./append.sh", f"word{n}"]},
            "id": f"append{n}",
        }

    def write(n: int) -> dict[str, object]:
        arguments = {"path": f"file{n}.txt", "content": f"text {n}\n"}
        return {"tool": "write_file", "arguments": arguments, "id": f"write{n}"}

    read = {"tool": "read_file", "arguments": {"path": "file1.txt"}, "id": "read2"}
    rounds = [[append(0)], [write(1)], [read], [append(3), write(4), append(5)]]
    return [*({"call": calls} for calls in rounds), {"say": "all done"}]


def ptrace(request: int, pid: int, data: int = 0) -> None:
    if libc.ptrace(request, pid, None, data) < 0:
        error = ctypes.get_errno()
        if error != 3:  # ESRCH: it is dead, or not stopped any more
            raise OSError(error, f"ptrace {request:#x}: {os.strerror(error)}")


def in_child(arguments: list[str], go: int | None = None) -> int:
    """A forked `ferrule` with these arguments; waits for a byte on `go` first."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        if go is not None:
            os.read(go, 1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        code = ferrule(arguments)
    finally:
        os._exit(code)


def traced(arguments: list[str], kill_at: int, journal: Path | None = None) -> tuple[int, int, int]:
    """Run and kill at this stop (0: never). How many stops were seen, the wait status, and at which
    stop `journal` was there.
    """
    reader, writer = os.pipe()
    main = in_child(arguments, reader)
    ptrace(SEIZE, main, OPTIONS)
    ptrace(INTERRUPT, main)
    os.write(writer, b"g")
    os.close(reader)
    os.close(writer)
    seen = begun = 0
    while True:
        pid, status = os.waitpid(-1, WALL)
        if not os.WIFSTOPPED(status):
            if pid == main:
                return seen, status, begun
            continue
        number, event = os.WSTOPSIG(status), status >> 16
        if number == signal.SIGTRAP | 0x80:
            seen += 1
            if journal is not None and not begun and journal.exists():
                begun = seen
            if seen == kill_at:
                os.kill(main, signal.SIGKILL)
            ptrace(SYSCALL, pid)
        elif event:
            ptrace(LISTEN if event == 128 and number in (19, 20, 21, 22) else SYSCALL, pid)
        else:
            ptrace(SYSCALL, pid, number)


def folder_of_a_run() -> Path:
    home = Path(tempfile.mkdtemp(prefix="ferrule-killing-"))
    work = home / "work"
    work.mkdir()
    program = work / "append.sh"
    program.write_text('#!/bin/sh\necho "$1" >> effects.txt\n')
    program.chmod(0o755)
    (home / "talk.yaml").write_text(json.dumps(talk()))
    (home / "end.yaml").write_text(json.dumps([{"say": "went on"}]))
    os.environ["FERRULE_STATE"], os.environ["FERRULE_CONFIG"] = (
        str(home / "state"),
        str(home / "config"),
    )
    return home


def started(home: Path) -> list[str]:
    model = f"scripted:{home}/talk.yaml"
    return ["run", "-m", model, "-C", str(home / "work"), *RULES, "go"]


def resumed(home: Path, session: str) -> list[str]:
    model = f"scripted:{home}/end.yaml"
    return ["sessions", "resume", session, "-m", model, "-C", str(home / "work"), *RULES]


def appended(home: Path) -> Counter[str]:
    file = home / "work" / "effects.txt"
    return Counter(file.read_text().split() if file.exists() else ())


def tried(stop: int) -> dict[str, Any]:
    """One point: run, kill, resume, look."""
    home = folder_of_a_run()
    try:
        seen, status, _ = traced(started(home), stop)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        journal = SqliteJournal(home / "state" / "journal.db")
        sessions = journal.sessions()
        if not sessions:
            journal.close()
            return {
                "killed": killed,
                "state": "not begun",
                "unknown": 0,
                "problems": [*nothing_done(home)],
            }
        session = sessions[0].session
        before = [record.event for record in journal.records(session)]
        journal.close()
        _, status = os.waitpid(in_child(resumed(home, session)), 0)
        code = os.waitstatus_to_exitcode(status)
        journal = SqliteJournal(home / "state" / "journal.db")
        journal.verify(session)
        after = [record.event for record in journal.records(session)]
        replayed = replay(journal.records(session))
        journal.close()
        problems, unknown = looked_at(home, before, after)
        problems += [f"replay: {difference}" for difference in replayed.differences]
        if code not in (0, 3):
            problems.append(f"resume ended with {code}")
        finished = any(isinstance(event, RunFinished) for event in before)
        state = "finished" if finished else "open"
        return {
            "killed": killed,
            "state": state,
            "unknown": unknown,
            "problems": problems,
            "seen": seen,
        }
    finally:
        shutil.rmtree(home, ignore_errors=True)


def nothing_done(home: Path) -> list[str]:
    return ["an effect without a session"] if appended(home) else []


def looked_at(home: Path, before: list[Any], after: list[Any]) -> tuple[list[str], int]:
    """What broke a promise, and how many calls are called unknown."""
    problems: list[str] = []
    machine = Machine()
    machine.rebuild(after)
    told = {m.call_id: m for m in machine.history if isinstance(m, ToolMessage)}
    calls = [call for m in machine.history if isinstance(m, AssistantMessage) for call in m.calls]
    if [call.id for call in calls] != list(told):
        problems.append(f"calls {[call.id for call in calls]} and results {list(told)} do not pair")
    if (stops := [e.stop for e in after if isinstance(e, RunFinished)]) != ["done"]:
        problems.append(f"the run ended as {stops}")
    words, unknown = appended(home), 0
    for call in calls:
        if (message := told.get(call.id)) is None:
            continue
        word = f"word{call.id.removeprefix('append')}" if call.tool == "run_command" else ""
        file = (
            home / "work" / f"file{call.id.removeprefix('write')}.txt"
            if call.tool == "write_file"
            else None
        )
        if "outcome unknown" in message.text:
            unknown += 1
        elif not message.success:
            problems.append(f"{call.id} failed: {message.text}")
        elif word and words[word] != 1:
            problems.append(f"{call.id} is said to be done, and happened {words[word]} times")
        elif file is not None and not file.exists():
            problems.append(f"{call.id} is said to be done, and there is no file")
        if file is not None and file.exists() and not file.read_text().startswith("text "):
            problems.append(f"{call.id} left half a file")
    problems += [f"{word} happened {count} times" for word, count in words.items() if count > 1]
    starts = Counter(e.call_id for e in after if isinstance(e, CallStarted))
    done = {e.result.call_id for e in before if isinstance(e, ToolAnswered)}
    problems += [f"{id} ran again" for id in done if id[:4] != "read" and starts[id] > 1]
    asked = {call.id for e in before if isinstance(e, ModelAnswered) for call in e.calls}
    problems += [f"{id} was forgotten" for id in asked - set(told)]
    return problems, unknown


def main() -> int:
    seed, first, last = (int(text) for text in sys.argv[1:4])
    home = folder_of_a_run()
    whole, _, begun = traced(started(home), 0, home / "state" / "journal.db")
    if appended(home) != Counter(("word0", "word3", "word5")):
        print(
            json.dumps({"point": -1, "problems": [f"without a kill: {dict(appended(home))}"]}),
            flush=True,
        )
        return 1
    shutil.rmtree(home, ignore_errors=True)
    broken = False
    for point in range(first, last):
        stop = random.Random(f"{seed} {point}").randrange(begun if point % 10 else 1, whole)
        found = tried(stop)
        broken |= bool(found["problems"])
        print(json.dumps({"point": point, "stop": stop, "of": whole, **found}), flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
