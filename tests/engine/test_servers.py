"""Runs through the public API against servers: an Ollama that misbehaves, and the real llama.cpp
over HTTP.
"""

from __future__ import annotations

from typing import Any

import pytest

from ferrule import Agent, ModelOptions, Ollama, OpenAIChat, ProviderError, Storage, tool
from ferrule.core.events import ModelAnswered, Noticed
from ferrule.models.scripted import calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.files import tools
from ollama_double import OllamaDouble


@tool(side_effect="none")
def weather(city: str) -> str:
    """The weather in a city now."""
    return f"{city}: rain, 9 degrees"


async def run(agent: Agent, question: str) -> tuple[str, list[Any]]:
    items = [item async for item in agent.stream(question)]
    answered = [item for item in items if isinstance(item, ModelAnswered)]
    await agent.close()
    return answered[-1].text if answered else "", items


async def test_an_ollama_that_ignores_tool_choice_and_sends_objects_is_understood() -> None:
    steps = [
        calls(("weather", {"city": "Ghent"}), ("weather", {"city": "Oslo"})),
        says("Rain in both."),
    ]
    async with OllamaDouble(steps) as server:
        agent = Agent(
            Ollama("llama3.2", base_url=server.url),
            [weather],
            storage=Storage(journal=SqliteJournal(":memory:")),
        )
        text, items = await run(agent, "Weather in Ghent and Oslo?")
        assert text == "Rain in both."
        told = [m for m in server.prompts[-1] if m["role"] == "tool"]
        assert [m["content"] for m in told] == ["Ghent: rain, 9 degrees", "Oslo: rain, 9 degrees"]
        assert not [item for item in items if isinstance(item, Noticed)]


async def test_a_server_that_cuts_from_the_front_is_reported_in_stream_and_journal() -> None:
    journal = SqliteJournal(":memory:")
    async with OllamaDouble([says("I see no tools.")], memory=600) as server:
        model_client = Ollama("llama3.2", base_url=server.url)
        agent = Agent(
            model_client, [weather], storage=Storage(journal=journal), instructions="word " * 4000
        )
        _, items = await run(agent, "Weather in Ghent?")
        notices = [item for item in items if isinstance(item, Noticed)]
        assert notices and notices[0].topic == "truncated" and "tokens" in notices[0].text
    session = journal.sessions()[0].session
    assert any(
        isinstance(r.event, Noticed) and r.event.topic == "truncated"
        for r in journal.records(session)
    )


async def test_the_question_cut_off_is_a_typed_error_with_a_next_step() -> None:
    async with OllamaDouble([says("never")], memory=40) as server:
        agent = Agent(
            Ollama("llama3.2", base_url=server.url),
            [weather],
            storage=Storage(journal=SqliteJournal(":memory:")),
        )
        with pytest.raises(ProviderError) as caught:
            await run(agent, "word " * 4000)
    assert caught.value.code == "context_overflow" and "num_ctx" in caught.value.hint


SHORT = ModelOptions(temperature=0, max_tokens=40)


@pytest.mark.model
async def test_a_template_that_drops_the_tools_is_said_where_native_calls_are_forced(
    llama_url: str,
) -> None:
    """SmolLM2's template takes the tools field and shows the model nothing of it."""
    model_client = OpenAIChat("smollm2", base_url=f"{llama_url}/v1", api_key="none")
    journal = SqliteJournal(":memory:")
    agent = Agent(
        model_client,
        [*tools.TOOLS, weather],
        storage=Storage(journal=journal),
        tool_calling="native",
        model_options=SHORT,
    )
    _, items = await run(agent, "What is the weather in Paris?")
    notices = [item for item in items if isinstance(item, Noticed)]
    assert [notice.topic for notice in notices] == ["truncated"]


@pytest.mark.model
async def test_the_real_llama_cpp_server_is_asked_in_a_way_it_can(llama_url: str) -> None:
    model_client = OpenAIChat("smollm2", base_url=f"{llama_url}/v1", api_key="none")
    assert (await model_client.capabilities()).tools is not True
    agent = Agent(
        model_client,
        [weather],
        storage=Storage(journal=SqliteJournal(":memory:")),
        model_options=SHORT,
    )
    _, items = await run(agent, "What is the weather in Paris?")
    answers = [item for item in items if isinstance(item, ModelAnswered)]
    assert answers[0].tool_mode == "constrained"
    assert answers[0].text or [call.tool for call in answers[0].calls] == ["weather"]
