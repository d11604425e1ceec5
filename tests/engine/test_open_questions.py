"""What becomes of a question to a person whose process ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.core.events import RunFinished, ToolAnswered
from ferrule.storage import SqliteJournal

PROGRAM = """
import asyncio, signal, sys
from ferrule import Agent, ApprovalAnswer, Permissions, Scripted, Storage, tool
from ferrule.models.scripted import calls, says

journal, how = sys.argv[1:]

@tool(side_effect="external", risk="high")
def pay(to: str) -> str:
    "Pay."
    print("paid", to, flush=True)
    return "paid"

class Person:
    async def ask(self, request):
        print("asked", flush=True)
        if how == "answers":
            return ApprovalAnswer("once", by="ada")
        await asyncio.Event().wait()

async def main():
    script = [says("Done.")] if how == "answers" else [calls(("pay", {"to": "Bo"})), says("Done.")]
    agent = Agent(
        Scripted(script), [pay],
        storage=Storage(journal=journal, user="ada"),
        permissions=Permissions(approver=Person()),
    )
    if how == "answers":
        async with agent.resume("s") as session:
            result = await session.resume()
            print("ended" if result is None else result.text, flush=True)
        return
    task = asyncio.ensure_future(agent.session(id="s").run("go"))
    if how == "cancels":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])

asyncio.run(main())
"""


def end_while_asking(journal: Path, how: str, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM, str(journal), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert said == ""


def resume_later(journal: Path) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, str(journal), "answers"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_question_of_a_process_that_was_ended_is_asked_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    journal = tmp_path / "kept.db"
    end_while_asking(journal, "waits", number)
    assert resume_later(journal) == ["asked", "paid Bo", "Done."]


def test_a_question_of_a_run_that_was_cancelled_is_withdrawn(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    end_while_asking(path, "cancels", signal.SIGTERM)
    assert resume_later(path) == ["ended"]
    with SqliteJournal(path) as journal:
        events = [record.event for record in journal.records("s")]
    assert [event.stop for event in events if isinstance(event, RunFinished)] == ["cancelled"]
    assert not [event for event in events if isinstance(event, ToolAnswered)]
