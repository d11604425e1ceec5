"""Runs that edit files, as their seed says, and are killed when and where a test wants it.

    recorded_edits.py FIRST LAST FOLDER

works the runs of these seeds undisturbed, and killed after each turn and taken over in another
folder, and compares both. With EDITS_DATABASE

    recorded_edits.py SEED FOLDER TURNS

works one run, with journal and artifacts in that database, and kills itself with SIGKILL at the
request after so many turns (0: never). The outcome is printed as JSON. What a run answers depends
on what it read of the files and of git.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ferrule import Agent, Permissions, Storage, tool
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.job_run import run_job
from ferrule.models.scripted import Scripted, Step, calls, says
from ferrule.plugins import TravellingFiles
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.postgres import PostgresArtifactStore
from ferrule.storage.artifacts.store import ArtifactStore
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.files import tools

TURNS = 5
_TIME = "2026-01-02T03:04:05Z"
_GIT = {
    "GIT_AUTHOR_DATE": _TIME,
    "GIT_COMMITTER_DATE": _TIME,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
_COMMANDS = (
    "git add -A && git commit -q -m 'change {n}'",
    "git checkout -q -b branch{n}",
    "git tag tag{n}",
    "echo {n} >> a.txt && git stash -q",
    "git add -A",
    "git gc -q",
    "mv a.txt moved{n}.txt || true",
    "rm -rf folder",
    "mkdir -p folder/empty{n} && echo {n} > folder/file{n}",
    "ln -sfn a.txt link{n}",
    "chmod +x b.sh",
    "rm -f link* && mkdir -p build && echo left > build/out",
    "rm -rf b.sh && mkdir b.sh && echo in > b.sh/inside",
)
# `build` is ignored by git, and what is ignored does not travel.
_LOOKS = (
    "git status --porcelain",
    "git log --all --format=%H%d",
    "cat *.txt; ls -R -I build",
    "git diff",
)


def make_start(folder: Path) -> None:
    """Make the repository that every run begins with."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.txt").write_text("first\nsecond\n")
    (folder / "b.sh").write_text("#!/bin/sh\necho b\n")
    (folder / ".gitignore").write_text("build/\n")
    shell(folder, "git init -q -b main . && git config user.name Me && git config user.email m@x.y")
    shell(folder, "git add -A && git commit -q -m first")


def shell(folder: Path, command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **_GIT},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def describe(folder: Path) -> dict[str, Any]:
    """All files of a folder, and the state of its repository, as they can be compared."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] in (".git", "build"):
            continue
        if path.is_symlink():
            files[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            files[name] = "folder"
        else:
            files[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o111))
    asked = {
        command: shell(folder, command)
        for command in (
            "git symbolic-ref HEAD",
            "git for-each-ref",
            "git ls-files -s",
            "git status --porcelain",
            "git stash list",
            "git log --all --format=%H",
            "git reflog --format=%H%gs",
            "git config user.name",
            "git fsck --no-dangling --no-progress",
        )
    }
    return {"files": files, **asked}


def make_turns(seed: int) -> list[list[tuple[str, dict[str, object]]]]:
    """Return the calls of each turn."""
    chance = random.Random(seed)
    turns: list[list[tuple[str, dict[str, object]]]] = []
    for turn in range(TURNS):
        made: list[tuple[str, dict[str, object]]] = []
        for _ in range(chance.randint(1, 2)):
            n = chance.randint(0, 9)
            if chance.random() < 0.3:
                text = f"written in turn {turn}\n" * chance.randint(0, 3)
                arguments = {"path": f"new{n}.txt", "content": text}
                made.append(("write_file", arguments))
            else:
                command = chance.choice(_COMMANDS).format(n=n)
                made.append(("do", {"command": command}))
        made.append(("do", {"command": chance.choice(_LOOKS)}))
        turns.append(made)
    return turns


class Recorded(Scripted):
    """A model that gives the recorded turns, and kills the process after so many of them."""

    def __init__(self, seed: int, most: int) -> None:
        super().__init__([self.answer] * (TURNS + 1))
        self._turns = make_turns(seed)
        self._left = most

    def answer(self, history: Sequence[Message]) -> Step:
        if self._left == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        done = sum(isinstance(message, AssistantMessage) for message in history)
        if done < len(self._turns):
            return calls(*self._turns[done])
        read = [
            (message.success, message.text)
            for message in history
            if isinstance(message, ToolMessage)
        ]
        return says(hashlib.sha256(json.dumps(read).encode()).hexdigest())

    def assert_finished(self) -> None:
        """Others may have given some of the answers."""


def make_agent(job: Job, journal: Journal, folder: Path, turns: int, store: ArtifactStore) -> Agent:
    @tool(parallel=False)
    def do(command: str) -> str:
        """Run a command in the folder."""
        return shell(folder, command)

    return Agent(
        Recorded(int(job.text), turns + 1 if turns else 0),
        [do, *tools.TOOLS],
        workspace=folder,
        permissions=Permissions(allow=["do", "Edit(**)", "Read(**)"]),
        plugins=[TravellingFiles()],
        storage=Storage(journal=journal, artifacts=store, tenant=job.tenant, user=job.user),
    )


def work(
    seed: str, folder: Path, turns: int, name: str, journal: Journal, store: ArtifactStore
) -> str:
    """Work the run of a seed, and return its outcome as JSON."""
    job = Job(seed, run=f"edits-{seed}-{name}").with_name()

    def make(job: Job, journal: Journal) -> Agent:
        return make_agent(job, journal, folder, turns, store)

    outcome = asyncio.run(run_job(job, journal, make))
    journal.close()
    return json.dumps({name: outcome[name] for name in ("stop", "text")})


def main(seed: str, folder: str, turns: str) -> None:
    database = os.environ["EDITS_DATABASE"]
    journal = PostgresJournal(database, lease_seconds=1)
    store = PostgresArtifactStore(database)
    print(work(seed, Path(folder), int(turns), os.environ["EDITS_NAME"], journal, store))


def work_in_child(seed: int, folder: Path, turns: int, name: str) -> str:
    """Work a run in a forked child, with files for journal and artifacts. "" if it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        top = folder.parent
        journal, store = SqliteJournal(top / "journal.db"), FileArtifactStore(top / "store")
        os.write(writer, work(str(seed), folder, turns, name, journal, store).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        printed = told.read()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or not status, status
    return "" if killed else printed


def compare(seed: int, top: Path) -> None:
    """Work a run undisturbed, and killed after each turn in one of two folders; compare both."""
    quiet, first, second = (top / name for name in ("quiet", "first", "second"))
    make_start(quiet)
    make_start(first)
    second.mkdir()
    expected = work_in_child(seed, quiet, 0, "quiet")
    assert json.loads(expected)["stop"] == "done"
    for number in range(TURNS + 1):
        place = (first, second)[number % 2]
        found = work_in_child(seed, place, 1, "killed")
        assert bool(found) == (number == TURNS), f"seed {seed}: turn {number}"
    assert found == expected, f"seed {seed}: {found}"
    here, there = describe(place), describe(quiet)
    different = [key for key in there if here[key] != there[key]]
    assert not different, f"seed {seed}: {[(here[key], there[key]) for key in different]}"


if __name__ == "__main__":
    if "EDITS_DATABASE" in os.environ:
        main(*sys.argv[1:])
    else:
        for seed in range(int(sys.argv[1]), int(sys.argv[2])):
            folder = Path(sys.argv[3], str(seed))
            folder.mkdir()
            compare(seed, folder)
            print(f"seed {seed}: equal", flush=True)
