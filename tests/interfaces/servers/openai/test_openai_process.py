"""`ferrule serve openai` as a process of its own, asked by the official client; with the embedded
model where it is pulled.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.paths import default_journal

FERRULE = str(Path(sys.executable).with_name("ferrule"))


@asynccontextmanager
async def serving(
    folder: Path, environment: dict[str, str], *words: str
) -> AsyncIterator[tuple[Any, str, str]]:
    """The process, the address that it says, and the token that it made."""
    process = await asyncio.create_subprocess_exec(
        FERRULE, "serve", "openai", "--port", "0", *words,
        cwd=folder, env=environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    url = token = ""
    said: list[str] = []
    try:
        async with asyncio.timeout(60):
            while not token:
                line = (await process.stderr.readline()).decode()
                assert line, "".join(said)
                said.append(line)
                url = line.split()[-1] if line.startswith("serving ") else url
                token = line.split()[-1] if line.startswith("token: ") else ""
        yield process, url, token
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def test_the_command_serves_on_a_free_port_and_ends_on_a_signal_with_everything_written(
    folder: Path, environment: dict[str, str], script: Callable[..., str]
) -> None:
    model, other = script({"say": "one"}), script({"say": "two"})
    environment["FERRULE_SERVE_MODELS"] = other
    async with serving(folder, environment, "-m", model) as (process, url, token):
        async with openai.AsyncOpenAI(base_url=url, api_key=token, max_retries=0) as client:
            ids = [one.id async for one in client.models.list()]
            assert ids == ["ferrule", f"ferrule/{other}", model, other]
            messages: Any = [{"role": "user", "content": "hi"}]
            made = await client.chat.completions.create(model="ferrule", messages=messages)
            lent = await client.chat.completions.create(model=other, messages=messages)
        assert (made.choices[0].message.content, lent.choices[0].message.content) == ("one", "two")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            _, err = await process.communicate()
        assert process.returncode == 143 and err == b""
    with SqliteJournal(default_journal()) as store:
        (session,) = store.sessions()
        store.verify(session.session)
        kinds = [record.event.kind for record in store.records(session.session)]
    assert kinds == ["session.opened", "run.started", "model.answered", "run.finished"]


def test_a_model_that_leads_nowhere_is_an_error_before_anything_is_served(
    ferrule: Any, folder: Path
) -> None:
    ran = ferrule("serve", "openai", "--port", "0", "--offer", "nobody:x", "-m", "local:smollm2")
    assert (
        ran.code == 2
        and "`nobody` is not a provider" in ran.err
        and "serving ferrule" not in ran.err
    )
    ran = ferrule("serve", "openai", "--port", "0", "--host", "0.0.0.0", "-m", "local:smollm2")
    assert ran.code == 2 and "in the clear" in ran.err


@pytest.mark.model
async def test_the_real_model_answers_a_question_with_a_file_tool(
    folder: Path, environment: dict[str, str]
) -> None:
    (folder / "plan.txt").write_text("sow the beans in May\n")
    words = ("-m", "local:smollm2", "--allow", "Read")
    async with (
        serving(folder, environment, *words) as (_, url, token),
        openai.AsyncOpenAI(base_url=url, api_key=token, max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "Read the file plan.txt"}]
        made: Any = await client.chat.completions.create(model="ferrule", messages=messages)
    assert "sow the beans in May" in made.choices[0].message.content
    assert [(one["tool"], one["success"]) for one in made.ferrule["calls"]] == [("read_file", True)]
    assert made.usage.total_tokens > 0


@pytest.mark.model
async def test_a_model_that_was_never_taught_to_call_tools_calls_those_of_the_client(
    folder: Path, environment: dict[str, str], weather: dict[str, Any]
) -> None:
    words = ("-m", "local:smollm2")
    async with (
        serving(folder, environment, *words) as (_, url, token),
        openai.AsyncOpenAI(base_url=url, api_key=token, max_retries=0) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
        tools: Any = [weather]
        first = await client.chat.completions.create(
            model="local:smollm2", messages=messages, tools=tools
        )
        message = first.choices[0].message
        assert message.tool_calls is not None
        (call,) = message.tool_calls
        assert call.type == "function" and call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Paris"}
        messages += [
            message,
            {"role": "tool", "tool_call_id": call.id, "content": "18 degrees and rain"},
        ]
        second = await client.chat.completions.create(
            model="local:smollm2", messages=messages, tools=tools
        )
    assert second.choices[0].finish_reason == "stop"
    assert "18 degrees and rain" in (second.choices[0].message.content or "")
