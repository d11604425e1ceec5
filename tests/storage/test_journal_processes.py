"""Several processes, each with several journals on one file: whoever opens and closes, nothing is
lost.

SQLite keeps its locks per process. A process that closes a descriptor of the file gives up the
locks of all its connections, and the next process that closes the journal removes the WAL that they
still write to.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys
from pathlib import Path
from ferrule.core.errors import JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.journal.change_detection import SqliteChangeDetector
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.journal.salvage import salvage

path, process = Path(sys.argv[1]), sys.argv[2]
journals = {}
watchers = {}

def counted(slot):
    journal = journals[slot]
    sessions = sorted(info.session for info in journal.sessions())
    for session in sessions:
        journal.verify(session)
    return {session: journal.head(session)[0] for session in sessions}

def append(slot):
    session = process + str(slot)
    journals[slot].append(session, "r", [Noticed("n", "x")], identity=Identity("local", "me", session, "r"))

def open_journal(slot):
    journals[slot] = SqliteJournal(path)
    journals[slot].lease(process + str(slot))

def close(slot):
    journals.pop(slot).close()

def watch(slot):
    watchers[slot] = SqliteChangeDetector(path)
    watchers[slot].has_changed()

def unwatch(slot):
    watchers.pop(slot).close()

def save(slot):
    try:
        salvage(path)
    except JournalError as error:
        assert error.code == "journal_busy"

for line in sys.stdin:
    name, slot = json.loads(line)
    print(json.dumps(globals()[name](slot)), flush=True)
"""
SLOTS = 2


class Program:
    """A process with up to `SLOTS` journals, each of which writes a session of its own."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.opened: set[int] = set()
        self.watched: set[int] = set()
        command = [sys.executable, "-c", PROGRAM, str(path), name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, name: str, slot: int) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, slot]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"`{name}` of {self.name} ended the process"
        return json.loads(answer)

    def choose(self, chance: random.Random) -> tuple[str, int]:
        """Something that this process can do now."""
        slot = chance.randrange(SLOTS)
        possible = ["open_journal"]
        if slot in self.opened:
            possible = ["append", "append", "counted", "close"]
        if slot in self.watched:
            possible.append("unwatch")
        elif self.opened:
            possible.append("watch")
        if self.opened:
            possible.append("save")
        return chance.choice(possible), slot

    def do(self, name: str, slot: int) -> Any:
        answer = self.ask(name, slot)
        match name:
            case "open_journal":
                self.opened.add(slot)
            case "close":
                self.opened.remove(slot)
            case "watch":
                self.watched.add(slot)
            case "unwatch":
                self.watched.remove(slot)
            case _:
                pass
        return answer

    def end(self) -> None:
        self._process.communicate(timeout=60)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_whoever_opens_and_closes_the_file(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = tmp_path / "journal.db"
    written: dict[str, int] = {}
    done: list[str] = []
    with contextlib.ExitStack() as ending:
        programs = [Program(path, name) for name in ("a", "b")]
        for program in programs:
            ending.callback(program.end)
        for _ in range(200):
            program = chance.choice(programs)
            name, slot = program.choose(chance)
            done.append(f"{program.name} {name} {slot}")
            answer = program.do(name, slot)
            if name == "append":
                session = f"{program.name}{slot}"
                written[session] = written.get(session, 0) + 1
            if name == "counted":
                assert answer == written, done
    last = Program(path, "c")
    try:
        last.do("open_journal", 0)
        assert last.do("counted", 0) == written
    finally:
        last.end()
