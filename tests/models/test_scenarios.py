"""One file of scenarios, every model client: what a model says comes to the same, whatever format carries
it.

The doubles are made of the official SDKs' types (`provider_double`) and refuse what
the providers would. The scenarios of a real llama.cpp server ask the same model over its three
routes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ferrule.core.calls import ErrorType, ToolCall, ToolResult, encode_json
from ferrule.core.errors import FerruleError, ProviderError, ToolFailed
from ferrule.core.events import ModelAnswered, RunFinished, Usage
from ferrule.core.limits import Limits
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.bedrock.client import Bedrock
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.cohere.client import Cohere
from ferrule.models.google.client import Google
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.scripted import Step, fails
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.model_client_conformance import ADD, RecordingSink
from ferrule.tools.decorator import tool
from ollama_double import OllamaDouble

# Found and not imported: every worker reads this file, the types of both take seconds, and one
# worker needs them.
if find_spec("anthropic") is None or find_spec("openai") is None:
    pytest.skip("`anthropic` and `openai` are not both installed here", allow_module_level=True)

from provider_double import ProviderDouble, Route

SCENARIOS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "scenarios.yaml").read_text("utf-8")
)
SCRIPTED = [scenario for scenario in SCENARIOS if "server" not in scenario]
REAL = [scenario for scenario in SCENARIOS if scenario.get("server") == "llama.cpp"]


def cohere_routes() -> Mapping[str, Route]:
    """The routes of Cohere's double, whose SDK only its scenarios load."""
    from cohere_double import COHERE_ROUTES

    return COHERE_ROUTES


def google_routes() -> Mapping[str, Route]:
    """The routes of Google's double, whose SDK only its scenarios load."""
    from google_double import google_routes

    return google_routes("gemini-3.8-flash")


BEDROCK_MODEL = "us.anthropic.claude-sonnet-5-v1:0"


def bedrock_routes() -> Mapping[str, Route]:
    """The routes of Bedrock's double, whose service model only its scenarios load."""
    from bedrock_double import bedrock_routes

    return bedrock_routes(BEDROCK_MODEL)


Server = Callable[[list[Step]], AbstractAsyncContextManager[Any]]
PROVIDERS: dict[str, tuple[Server, Callable[[str], ModelClient]]] = {
    "openai": (
        ProviderDouble,
        lambda url: OpenAIChat("llama3.2", base_url=f"{url}/v1", api_key="k"),
    ),
    "openai-responses": (
        ProviderDouble,
        lambda url: OpenAIResponses("llama3.2", base_url=f"{url}/v1", api_key="k", strict=True),
    ),
    "anthropic": (ProviderDouble, lambda url: Anthropic("llama3.2", base_url=url, api_key="k")),
    "cohere": (
        lambda steps: ProviderDouble(steps, cohere_routes()),
        lambda url: Cohere("llama3.2", base_url=url, api_key="k"),
    ),
    "google": (
        lambda steps: ProviderDouble(steps, google_routes()),
        lambda url: Google("gemini-3.8-flash", base_url=url, api_key="k"),
    ),
    "bedrock": (
        lambda steps: ProviderDouble(steps, bedrock_routes()),
        lambda url: Bedrock(BEDROCK_MODEL, region="eu-west-1", base_url=url, api_key="k"),
    ),
    "ollama": (
        lambda steps: OllamaDouble(steps, default_window=32_768),
        lambda url: Ollama("llama3.2", base_url=url),
    ),
}


@tool(side_effect="none")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effect="write")
def wipe() -> str:
    """Wipe the disk."""
    raise AssertionError("it must not run")


@tool(side_effect="none")
def break_down(why: str) -> str:
    """Fail."""
    raise ToolFailed(ErrorType.IO_ERROR, f"broken: {why}")


@tool(name="repeat.it", namespace="words", side_effect="none")
def repeat(text: str) -> str:
    """Say it again."""
    return text


TOOLS = [add, wipe, break_down, repeat]
API_NAMES = {"words::repeat.it": "words__repeat_it"}


def step(said: Mapping[str, Any]) -> Step:
    """A step of a scenario, its calls under the names that providers see."""
    if "fail" in said:
        given = said["fail"]
        return fails(ProviderError(given["detail"], code=given["code"], status=given["status"]))
    calls = tuple(
        ToolCall(
            call.get("id", ""),
            API_NAMES.get(call["tool"], call["tool"]),
            encode_json(call["arguments"]),
        )
        for call in said.get("call", ())
    )
    stop = said.get("stop", "calls" if calls else "")
    return Step(said.get("say", ""), calls, said.get("reasoning", ""), Usage(1000, 7), stop)


def outcome(
    server: Server,
    model_client_of: Callable[[str], ModelClient],
    scenario: Mapping[str, Any],
    *,
    streamed: bool,
    folder: Path,
) -> dict[str, Any]:
    """How the scenario ends over this model client."""

    async def run_scenario() -> dict[str, Any]:
        journal = SqliteJournal(folder / "journal.db")
        steps = [step(said) for said in scenario["model"]]
        async with asyncio.timeout(60), server(steps) as double:
            model_client = model_client_of(double.url)
            agent = Agent(
                model_client,
                TOOLS,
                tool_calling="native",
                storage=Storage(journal=journal),
                limits=Limits(max_turns=scenario.get("rounds", 10)),
            )
            session = agent.session()
            ended: dict[str, Any] = {}
            results: list[ToolResult] = []
            try:
                for message in (scenario["user"], scenario.get("then")):
                    if message is not None:
                        ended = await one_run(session, message, streamed)
                        results += session.driver.machine.results()
            finally:
                await session.close()
                await model_client.close()
            if isinstance(double, ProviderDouble):
                assert double.refusals == []
        events = [record.event for record in journal.records(session.id)]
        journal.close()
        ended["calls"] = [
            [r.tool, r.success, str(r.data) if r.success else str(r.error_type)] for r in results
        ]
        if "reasoning" in scenario["outcome"]:
            ended["reasoning"] = next(
                event.reasoning for event in events if isinstance(event, ModelAnswered)
            )
        return ended

    return asyncio.run(run_scenario())


async def one_run(session: Any, message: str, streamed: bool) -> dict[str, Any]:
    try:
        if streamed:
            finished = [item async for item in session.stream(message)][-1]
            assert isinstance(finished, RunFinished)
            return {"stop": finished.stop, "text": finished.text}
        result = await session.run(message)
    except FerruleError as error:
        return {"code": error.code}
    return {"stop": result.stop, "text": result.text}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model_client", PROVIDERS)
@pytest.mark.parametrize("scenario", SCRIPTED, ids=[scenario["name"] for scenario in SCRIPTED])
def test_the_outcome_is_the_same_for_every_provider(
    scenario: dict[str, Any], model_client: str, streamed: bool, tmp_path: Path
) -> None:
    if model_client in scenario.get("not_on", ()):
        pytest.skip(f"the format of {model_client} cannot say this")
    if model_client == "cohere" and find_spec("cohere") is None:
        pytest.skip("`cohere` is not installed: its types make the double")
    if model_client == "google" and not (find_spec("google") and find_spec("google.genai")):
        pytest.skip("`google-genai` is not installed: its types make the double")
    if model_client == "bedrock" and find_spec("botocore") is None:
        pytest.skip("`botocore` is not installed: its service model makes the double")
    server, model_client_of = PROVIDERS[model_client]
    assert (
        outcome(server, model_client_of, scenario, streamed=streamed, folder=tmp_path)
        == scenario["outcome"]
    )


# ---- a real server

ROUTES: dict[str, Callable[[str], ModelClient]] = {
    "openai": lambda url: OpenAIChat("m", base_url=f"{url}/v1", api_key=""),
    "openai-responses": lambda url: OpenAIResponses("m", base_url=f"{url}/v1", api_key=""),
    "anthropic": lambda url: Anthropic("m", base_url=url, api_key=""),
}
OVER_CHAT: dict[str, ModelAnswered] = {}
"""What the chat route answered to a scenario: asked once, it is the same every time."""
PLAIN_ADD: ToolSpec = replace(ADD, name="add", api_name="add")


def answered(
    model_client: ModelClient, scenario: Mapping[str, Any], *, streamed: bool
) -> ModelAnswered:
    history: list[Any] = [UserMessage(scenario["user"])]
    for said in scenario.get("model", ()):
        made = step(said)
        history.append(AssistantMessage(made.text, made.calls))
        history += [
            ToolMessage(call.id, call.tool, "3", success=n == 0)
            for n, call in enumerate(made.calls)
        ]

    async def run_scenario() -> ModelAnswered:
        tools = [PLAIN_ADD] if "model" in scenario else []
        options = ModelOptions(temperature=0.0, max_tokens=64 if "schema" in scenario else 24)
        async with asyncio.timeout(240):
            try:
                exchange = model_client.open("You answer briefly.", tools, options)
                sink = RecordingSink() if streamed else None
                found = await exchange.ask(history, schema=scenario.get("schema"), sink=sink)
                if "then" in scenario:
                    history.append(
                        AssistantMessage(found.text, found.calls, found.reasoning, found.raw)
                    )
                    found = await exchange.ask([*history, UserMessage(scenario["then"])], sink=sink)
                return found
            finally:
                await model_client.close()

    return asyncio.run(run_scenario())


@pytest.mark.model
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model_client", ["openai-responses", "anthropic"])
@pytest.mark.parametrize("scenario", REAL, ids=[scenario["name"] for scenario in REAL])
def test_a_real_server_answers_the_same_on_every_route(
    scenario: dict[str, Any], model_client: str, streamed: bool, llama_url: str
) -> None:
    if model_client in scenario.get("not_on", ()):
        pytest.skip(f"llama.cpp cannot do this on the route of {model_client}")
    expected = scenario["outcome"]
    found = answered(ROUTES[model_client](llama_url), scenario, streamed=streamed)
    if "reply" in expected:
        assert json.loads(found.text) == expected["reply"]
        return
    assert (found.stop in ("end", "length"), bool(found.text), found.usage.output > 0) == (
        True,
        True,
        True,
    )
    if expected["same"] == "text":
        if scenario["name"] not in OVER_CHAT:
            OVER_CHAT[scenario["name"]] = answered(
                ROUTES["openai"](llama_url), scenario, streamed=False
            )
        chat = OVER_CHAT[scenario["name"]]
        # llama.cpp calls an answer that it cut completed, on its Responses route.
        stop = "end" if model_client == "openai-responses" else chat.stop
        assert (found.text, found.usage.input, found.stop) == (chat.text, chat.usage.input, stop)
