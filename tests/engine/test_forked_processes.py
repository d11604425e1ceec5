"""Agents in forked processes, as servers have them that load a program before they fork.

Each program runs in a process of its own: forks of a test process would inherit pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BOUND = 120
FORKS = int(os.environ.get("FERRULE_TEST_FORKS", "40"))
"""Forks of the busy parent. `make lab NAME=forks` takes 200."""

COMMON = """
import asyncio, os, signal, sys, threading, warnings
from ferrule import Agent, Scripted, Storage, tool
from ferrule.storage import SqliteJournal
from ferrule.testing import calls, says

warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads

@tool(side_effect="read")
def add(number: int) -> int:
    "Add one, in a thread."
    return number + 1

def answer(history):
    turns = sum(type(message).__name__ == "AssistantMessage" for message in history)
    numbers = map(int, history[0].text.split())
    return says("end") if turns else calls(*(("add", {"number": one}) for one in numbers))


def agent(journal, runs=1):
    return Agent(Scripted([answer] * 2 * runs), [add], storage=Storage(journal=journal))

def check(journal, *numbers):
    ran = agent(journal).run_sync(" ".join(map(str, numbers or (1, 2))))
    assert [result.data for result in ran.results] == [one + 1 for one in numbers or (1, 2)]

def in_child(work):
    child = os.fork()
    if child:
        return child
    signal.alarm(20)
    try:
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)

def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def run_program(program: str, folder: Path, *, forks: int = FORKS) -> str:
    """Run a program and return what it prints. Its errors are this test's."""
    ended = subprocess.run(
        [sys.executable, "-c", COMMON + textwrap.dedent(program), str(folder), str(forks)],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("journal", ["memory", "file"])
def test_a_forked_child_runs_tools_that_its_parent_has_run(journal: str, tmp_path: Path) -> None:
    where = ":memory:" if journal == "memory" else str(tmp_path / "journal.db")
    program = f"""
    journal = SqliteJournal({where!r})
    check(journal, 1, 2, 3, 4)
    # As few calls as the parent surely had threads for: they must not be waited for here.
    print(status(in_child(lambda: check(journal, 1))))
    check(journal)
    for info in journal.sessions():
        journal.verify(info.session)
    print(len(journal.sessions()))
    """
    # What a child keeps in memory is its own; a file has the sessions of both.
    expected = "2" if journal == "memory" else "3"
    assert run_program(program, tmp_path).split() == ["0", expected]


def test_children_of_a_busy_parent_run_whatever_its_threads_were_doing(tmp_path: Path) -> None:
    program = """
    journal = SqliteJournal(sys.argv[1] + "/journal.db")
    stopped = threading.Event()

    def work():
        while not stopped.is_set():
            check(journal)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    check(journal)
    statuses = []
    for _ in range(int(sys.argv[2])):
        statuses.append(status(in_child(lambda: check(journal))))
    stopped.set()
    for thread in threads:
        thread.join()
    check(journal)
    print(len(statuses), set(statuses))
    assert journal.find_problems() == []
    """
    assert run_program(program, tmp_path).strip() == f"{FORKS} {{0}}"


def test_a_child_that_is_forked_inside_an_event_loop_runs_on_a_loop_of_its_own(
    tmp_path: Path,
) -> None:
    program = """
    async def main():
        journal = SqliteJournal(":memory:")
        await agent(journal).run("1")
        print(status(in_child(lambda: check(journal, 1))))
        await agent(journal).run("2")

    asyncio.run(main())
    """
    assert run_program(program, tmp_path).strip() == "0"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_start_method_run_agents(method: str, tmp_path: Path) -> None:
    """A program in a file, which the workers of `spawn` import."""
    program = tmp_path / "program.py"
    program.write_text(
        COMMON
        + textwrap.dedent(
            f"""
            import multiprocessing

            def work(number):
                check(SqliteJournal(":memory:"))
                return number

            if __name__ == "__main__":
                check(SqliteJournal(":memory:"))
                with multiprocessing.get_context({method!r}).Pool(2) as pool:
                    print(pool.map_async(work, range(4)).get(60))
            """
        )
    )
    ended = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert ended.stdout.strip() == "[0, 1, 2, 3]", ended.stderr


def test_a_child_ends_nothing_of_its_parent(tmp_path: Path) -> None:
    """The parent's leases, its journal and its fork server outlive a child that ends normally."""
    program = """
    from ferrule.sandbox.launcher import Launcher

    path = sys.argv[1] + "/journal.db"
    journal = SqliteJournal(path)
    shared = agent(journal, runs=2)
    launcher = Launcher()
    launcher.start()
    server = launcher.pid
    session = shared.session()
    asyncio.run(session.run("1"))
    child = os.fork()
    if not child:
        # What this process inherited is dropped, and its finalizers and exit functions run.
        check(journal)
        del session, shared, journal, launcher
        sys.exit(0)
    assert status(child) == 0
    os.kill(server, 0)
    other = SqliteJournal(path)
    try:
        other.lease(session.id)
    except Exception as error:
        print(error.code)
    asyncio.run(session.run("2"))
    launcher.close_now()
    """
    assert run_program(program, tmp_path).strip() == "journal_leased"
