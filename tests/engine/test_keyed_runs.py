"""A run with a key is worked once: again, after a crash, and from two processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ferrule import Agent, ConfigError, ProviderError, Scripted, Storage, tool
from ferrule.core.messages import Message
from ferrule.models.scripted import Step, fails
from ferrule.testing import calls, says


class Invoice(BaseModel):
    number: int
    paid: bool = False


def make_agent(journal: Path | str, script: Sequence[Any], **more: Any) -> Agent[Any, Any]:
    return Agent(Scripted(script), storage=Storage(journal=journal), **more)


async def test_a_finished_run_gives_its_result_again_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "j.db"
    first = make_agent(file, [says("42")])
    result = await first.run("How many?", key="order-7")
    await first.close()
    model = Scripted([])
    second = Agent(model, storage=Storage(journal=file))
    again = await second.run("How many?", key="order-7")
    assert (again.text, again.session, again.usage) == ("42", result.session, result.usage)
    assert again.messages.to_json() == result.messages.to_json() and model.asks == []
    await second.close()


async def test_a_typed_result_is_the_same_value_and_a_function_does_not_run_again() -> None:
    agent = make_agent(":memory:", [says('{"number": 7}')], output_type=Invoice)
    first = await agent.run("Read it.", key="a")
    again = await agent.run("Read it.", key="a")
    assert again.output == first.output == Invoice(number=7)

    booked: list[int] = []

    def book(number: int) -> str:
        """Book it."""
        booked.append(number)
        return f"booked {number}"

    agent = make_agent(":memory:", [says('{"value": 3}')], output_type=book)
    outputs = [(await agent.run("Book.", key="b")).output for _ in range(2)]
    assert outputs == ["booked 3", "booked 3"] and booked == [3]


async def test_keys_and_users_are_told_apart_and_messages_compared() -> None:
    agent = make_agent(":memory:", [says("one"), says("two"), says("three")])
    assert (await agent.run("go", key="a")).text == "one"
    assert (await agent.run("go", key="b")).text == "two"
    assert (await agent.copy_for_user("eve").run("go", key="a")).text == "three"
    with pytest.raises(ConfigError, match="another message") as raised:
        await agent.run("stay", key="a")
    assert raised.value.code == "key_used"


async def test_a_run_that_failed_is_tried_again() -> None:
    broken = fails(ProviderError("no", code="http_400", retryable=False))
    agent = make_agent(":memory:", [broken, says("fine")])
    with pytest.raises(ProviderError):
        await agent.run("go", key="a")
    assert [(await agent.run("go", key="a")).text for _ in range(2)] == ["fine", "fine"]


async def test_many_that_ask_at_once_share_one_run() -> None:
    entered = 0

    async def answer(history: Sequence[Message]) -> Step:
        nonlocal entered
        entered += 1
        await asyncio.sleep(0.05)
        return says("once")

    agent = make_agent(":memory:", [answer])
    results = await asyncio.gather(*(agent.run("go", key="a") for _ in range(5)))
    assert {one.text for one in results} == {"once"} and entered == 1


PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from ferrule import Agent, Scripted, Storage, tool
from ferrule.testing import calls, says

log = Path(sys.argv[2])

@tool(side_effect="external", risk="low")
def charge(order: int) -> str:
    "Charge the card."
    with log.open("a") as file:
        file.write(f"{order}\\n")
    return "charged"

async def answer(history):
    await asyncio.sleep(0.3)
    if len(sys.argv) > 3 and sys.argv[3] == "die":
        os._exit(9)
    return says("done")

class Model(Scripted):
    async def close(self):
        "Close it, whether all steps were used or not."

model = Model([calls(("charge", {"order": 7})), answer])
from ferrule import Permissions
agent = Agent(model, [charge], permissions=Permissions(allow=["charge"]),
              storage=Storage(journal=sys.argv[1], user="shop"))
print(agent.run_sync("Charge order 7.", key="order-7").text)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_work_a_key_exactly_once(tmp_path: Path) -> None:
    where = (str(tmp_path / "j.db"), str(tmp_path / "charged"))
    ended = [process.communicate(timeout=60) for process in (start(*where), start(*where))]
    assert [out.strip() for out, _ in ended] == ["done", "done"], ended
    assert (tmp_path / "charged").read_text() == "7\n"


def test_what_a_killed_process_left_open_is_continued(tmp_path: Path) -> None:
    where = (str(tmp_path / "j.db"), str(tmp_path / "charged"))
    killed = start(*where, "die")
    killed.communicate(timeout=60)
    assert killed.returncode == 9
    assert (tmp_path / "charged").read_text() == "7\n"
    script = [says("done after all")]

    @tool(side_effect="external", risk="low")
    def charge(order: int) -> str:
        """Charge the card."""
        raise AssertionError("charged twice")

    agent = Agent(Scripted(script), [charge], storage=Storage(journal=where[0], user="shop"))
    result = agent.run_sync("Charge order 7.", key="order-7")
    assert result.text == "done after all" and result.results[0].data == "charged"
    asyncio.run(agent.close())


async def test_an_empty_key_of_a_batch_is_no_key() -> None:
    agent = make_agent(":memory:", [calls(("x", {})), says("a"), says("b")])
    assert {(await agent.run("go", key="")).text, (await agent.run("go")).text} == {"a", "b"}
