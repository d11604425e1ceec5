"""Which model is used where none is named, on made-up machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ferrule.models.ollama import client as ollama_client
from ferrule.models.registry import PROVIDERS
from ferrule.runtime import model_choice
from ferrule.runtime.model_choice import (
    UnusableProvider,
    choose_model,
    describe_choice,
    find_candidates,
)
from ferrule.runtime.model_discovery import discover_models
from ferrule.storage.settings.settings import load_settings
from ferrule.testing.http_double import HttpDouble, Reply, Request

GIB = 1 << 30


def ollama(sizes: Mapping[str, float], without_tools: str = "") -> HttpDouble:
    """An Ollama with models of these sizes in GiB."""

    def answer(request: Request) -> Reply:
        if request.target == "/api/tags":
            models = [{"name": name, "size": int(size * GIB)} for name, size in sizes.items()]
            return Reply(json={"models": models})
        name = request.json()["model"]
        listed = ["completion"] if name == without_tools else ["completion", "tools"]
        return Reply(json={"capabilities": listed, "model_info": {}})

    return HttpDouble(answer)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB of memory, and no server of another test."""
    monkeypatch.setattr(ollama_client, "_memory_size", lambda: 16 * GIB)
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")


async def test_the_embedded_model_is_the_last_resort_and_is_called_what_it_is() -> None:
    chosen = await choose_model(load_settings())
    assert chosen.model == "local:smollm2" and chosen.caution
    line = describe_choice(chosen)
    assert "135 million parameters" in line and "`ferrule setup`" in line and "\n" not in line


async def test_the_largest_model_that_fits_and_calls_tools_is_taken_from_a_running_ollama(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"small": 1.0, "huge": 40.0, "mute": 9.0, "right": 8.0, "vast": 60.0}
    async with ollama(sizes, without_tools="mute") as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        chosen = await choose_model(load_settings())
        found = (await find_candidates(load_settings())).found
    assert chosen.model == "ollama:right"
    names = [one.model for one in found if one.model.startswith("ollama:")]
    assert names == ["ollama:right", "ollama:small", "ollama:huge", "ollama:vast"]
    assert found[-1].caution


async def test_an_ollama_without_a_tool_model_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ollama({"mute": 1.0}, without_tools="mute") as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        assert (await choose_model(load_settings())).caution


async def test_a_key_comes_before_a_running_ollama(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ollama({"right": 8.0}) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        monkeypatch.setenv("GROQ_API_KEY", "k")
        chosen = await choose_model(load_settings())
        assert (chosen.model, chosen.reason) == (
            PROVIDERS["groq"].default_model,
            "GROQ_API_KEY is set",
        )
        monkeypatch.setenv("HF_TOKEN", "only for downloads")
        monkeypatch.delenv("GROQ_API_KEY")
        assert (await choose_model(load_settings())).model == "ollama:right"


@pytest.mark.parametrize(
    ("listed", "model"),
    [
        (["text-embedding-3", "whisper-1", "house-model"], "openai:house-model"),
        (["house-model", "gpt-5.5"], "openai:gpt-5.5"),
    ],
)
async def test_a_gateway_is_asked_which_models_it_has(
    listed: list[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Reply(json={"data": [{"id": name} for name in listed]})
    async with HttpDouble(lambda request: reply) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        chosen = await choose_model(load_settings())
    assert chosen.model == model


@pytest.mark.parametrize(
    ("reply", "problem", "hint"),
    [
        (
            Reply(401, json={"error": {"message": "wrong key."}}),
            "the key in OPENAI_API_KEY is refused by URL/v1: wrong key",
            "set OPENAI_API_KEY to another one",
        ),
        (
            Reply(404, json={}),
            "OPENAI_API_KEY is set, but URL/v1/models answered HTTP 404",
            "check that address, or name a model, as in `openai:MODEL`",
        ),
        (
            Reply(json={"data": [{"id": "text-embedding-3"}]}),
            "OPENAI_API_KEY is set, but URL/v1 lists no model for messages",
            "check that address, or name a model, as in `openai:MODEL`",
        ),
        (
            Reply(hold_head=True),
            "OPENAI_API_KEY is set, but URL/v1 did not answer in 0.1 seconds",
            "check that address, or name a model, as in `openai:MODEL`",
        ),
        (
            None,
            "OPENAI_API_KEY is set, but cannot reach http://127.0.0.1:9: Connect call failed "
            "('127.0.0.1', 9)",
            "check the address, and whether the server is running",
        ),
    ],
    ids=["refused", "not found", "no chat", "silent", "unreachable"],
)
async def test_a_key_that_gives_no_model_is_said_with_what_is_wrong(
    reply: Reply | None, problem: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with HttpDouble(lambda request: reply or Reply()) as server:
        url = server.url if reply else "http://127.0.0.1:9"
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        if reply is not None and reply.hold_head:
            monkeypatch.setattr(model_choice, "SECONDS", 0.1)
        candidates = await find_candidates(load_settings())
        chosen = await choose_model(load_settings())
        listed = await discover_models(load_settings())
    expected = problem.replace("URL", url)
    assert candidates.unusable == [UnusableProvider("openai", expected, hint)]
    assert [one.model for one in candidates.found] == ["local:smollm2"]
    assert chosen.reason == f"{expected} and no Ollama is running"
    [row] = [one for one in listed if one.model.startswith("openai:")]
    assert (row.ready, row.detail) == (False, f"{expected}: {hint}")


async def test_a_gateways_own_models_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = Reply(json={"data": [{"id": "house-model"}, {"id": "house-embed"}]})
    async with HttpDouble(lambda request: reply) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        listed = await discover_models(load_settings())
    names = [(one.model, one.ready) for one in listed if one.model.startswith("openai:")]
    assert names == [("openai:house-model", True), ("openai:house-embed", True)]


async def test_a_server_that_does_not_answer_is_waited_for_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_choice, "SECONDS", 0.05)
    async with HttpDouble(lambda request: Reply(hold_head=True)) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        chosen: Any = await choose_model(load_settings())
    assert chosen.caution
