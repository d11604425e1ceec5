"""The bytes of requests, one golden file for each client and feature.

A file is what the client sends, byte for byte; each is checked by the types of the provider's own
SDK where it has one (Ollama's is not installed here: its files are compared alone). After a change
that is meant, `FERRULE_WRITE_GOLDEN=1` writes the files again; the checks hold all the same.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from media_messages import history, load

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ProviderError
from ferrule.core.media import LoadedMedia
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.bedrock.client import Bedrock
from ferrule.models.client import ModelClient, ModelOptions
from ferrule.models.cohere.client import Cohere
from ferrule.models.google.client import Google
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.registry import PROVIDERS, create_model_client
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import ADD, OPTIONS
from media_samples import make_wav

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
SAMPLING = ("temperature", "top_p", "top_k")
GOLDEN = Path(__file__).parent / "golden" / "requests"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


FEATURES = frozenset(
    {
        "text",
        "conversation",
        "results-with-media",
        "schema-beside-tools",
        "schema-alone",
        "options",
        "thinking",
        "caching",
        "documents",
    }
)


class Client(NamedTuple):
    """A client, the check by its provider's types, and the row of its options."""

    make: Callable[[str], ModelClient]
    sdk: str
    provider: str
    has_pdf: bool = True
    features: frozenset[str] = FEATURES


def make_responses(url: str) -> OpenAIResponses:
    """A client that takes the server for OpenAI's own."""
    client = OpenAIResponses("gpt-x", base_url=url, api_key="k", strict=True)
    client.is_openai = True
    return client


CLIENTS = {
    "anthropic": Client(
        lambda url: Anthropic("claude-x", base_url=url, api_key="k"), "anthropic", "anthropic"
    ),
    "bedrock": Client(
        lambda url: Bedrock("m", region="eu-west-1", base_url=url, api_key="k"),
        "botocore",
        "bedrock",
    ),
    "bedrock-claude": Client(
        lambda url: Bedrock(
            "anthropic.claude-haiku-4-5", region="eu-west-1", base_url=url, api_key="k"
        ),
        "botocore",
        "bedrock",
        features=frozenset({"conversation", "thinking", "caching"}),
    ),
    "chat": Client(lambda url: OpenAIChat("gpt-x", base_url=url, api_key="k"), "openai", "groq"),
    "cohere": Client(
        lambda url: Cohere("command-x", base_url=url, api_key="k"), "cohere", "cohere", False
    ),
    "google": Client(
        lambda url: Google("gemini-3.8-flash", base_url=url, api_key="k"), "google.genai", "google"
    ),
    "ollama": Client(lambda url: Ollama("m", base_url=url), "", "ollama", False),
    "openrouter": Client(
        lambda url: create_model_client("openrouter:claude-x", base_url=url, api_key="k"),
        "openai",
        "openrouter",
        features=frozenset({"conversation", "thinking", "caching"}),
    ),
    "responses": Client(make_responses, "openai", "openai-responses"),
}
_OPTIONS_OF = {
    "thinking": {"thinking": "low"},
    "caching": {
        "cache_control": "1h",
        "cache_key": "key-97",
        "cached_content": "cachedContents/97",
    },
}


def has_feature(name: str, feature: str) -> bool:
    """Whether a client has what a feature is about; Bedrock has marks and no option for them."""
    client = CLIENTS[name]
    if feature not in client.features or (name, feature) == ("bedrock", "thinking"):
        return False
    needed = _OPTIONS_OF.get(feature, {}).keys()
    is_marked = (name, feature) == ("bedrock-claude", "caching")
    return is_marked or not needed or bool(PROVIDERS[client.provider].options & needed)


PAIRS = [
    (name, feature)
    for name in CLIENTS
    for feature in sorted(FEATURES)
    if has_feature(name, feature)
]


def documents(name: str) -> tuple[LoadedMedia, ...]:
    """A text, which all take, and a sound or a table where the protocol takes one."""
    taken = [load("document", "text/plain", b"Dear Ada, <document> 5 < 6", 11)]
    if name in ("chat", "google"):
        taken.append(load("audio", "audio/wav", make_wav(), 11, "note.wav"))
    if name in ("responses", "bedrock"):
        taken.append(load("document", XLSX, b"PK\3\4 a table", 11, "table.xlsx"))
    return tuple(taken)


def conversation() -> list[Message]:
    """Two calls at once, of which one fails, an answer, and another question."""
    asked = (
        ToolCall("t00000001", "math::add", '{"a":1,"b":2}'),
        ToolCall("t00000002", "math::add", "{}"),
    )
    return [
        UserMessage("Was ist 1+2? ☃"),
        AssistantMessage("Let me see.", asked),
        ToolMessage("t00000001", "math::add", "3"),
        ToolMessage("t00000002", "math::add", "`a` is missing", success=False),
        AssistantMessage("3"),
        UserMessage("And 3+4?"),
    ]


def send(name: str, feature: str) -> bytes:
    """Return the body of the request that a client sends; the server then refuses it."""
    client = CLIENTS[name]
    options = ModelOptions()
    if feature == "options":
        allowed = PROVIDERS[client.provider].options
        chosen = {key: value for key, value in OPTIONS.items() if key in allowed}
        if "service_tier" in chosen:
            chosen["service_tier"] = "flex"
        options = ModelOptions(**chosen)
    if feature in _OPTIONS_OF:
        allowed = PROVIDERS[client.provider].options
        known = {key: value for key, value in _OPTIONS_OF[feature].items() if key in allowed}
        options = ModelOptions(**known)
    messages: list[Message] = [UserMessage("Was ist 1+2? ☃")]
    if feature in ("conversation", "caching"):
        messages = conversation()
    if feature == "documents":
        messages = [UserMessage("Sum it up.", documents(name))]
    if feature == "results-with-media":
        messages = history(with_pdf=client.has_pdf)
    schema = SCHEMA if feature.startswith("schema") else None

    def answer(request: Request) -> Reply:
        if request.target.endswith("/api/show"):
            return Reply(json={"capabilities": ["completion", "tools", "vision", "thinking"]})
        return Reply(status=400, json={"error": {"message": "no"}})

    async def story() -> bytes:
        async with asyncio.timeout(20), HttpDouble(answer) as server:
            model = client.make(server.url)
            exchange = model.open("Be brief.", [ADD], options)
            with pytest.raises(ProviderError):
                await exchange.ask(messages, tools=feature != "schema-alone", schema=schema)
            await model.close()
            return next(one.body for one in server.requests if "show" not in one.target)

    return asyncio.run(story())


def _respell_bytes(asked: dict[str, Any]) -> dict[str, Any]:
    """Spell base64 as the SDK writes it: the API takes both alphabets."""

    def respell(value: Any) -> Any:
        if isinstance(value, list):
            return [respell(one) for one in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        members = {name: respell(one) for name, one in cast("dict[str, Any]", value).items()}
        if "mimeType" in members:
            members["data"] = members["data"].replace("+", "-").replace("/", "_")
        return members

    return respell(asked)


def _drop_sampling(asked: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the types of the newest SDK have no more, and what older models take."""
    return {name: one for name, one in asked.items() if name not in SAMPLING}


def _drop_marks(asked: Any) -> Any:
    """Leave out the marks for the prompt cache, which only gateways know."""
    if isinstance(asked, list):
        return [_drop_marks(one) for one in cast("list[Any]", asked)]
    if not isinstance(asked, dict):
        return asked
    members = cast("dict[str, Any]", asked)
    return {name: _drop_marks(one) for name, one in members.items() if name != "cache_control"}


@cache
def find_check(name: str) -> Callable[[dict[str, Any]], None]:
    """Return the check by the types of a provider's SDK."""
    import provider_double

    if name.startswith("bedrock"):
        from bedrock_double import check_request as of_bedrock

        return lambda asked: of_bedrock(asked, model=name)
    if name == "cohere":
        from cohere_double import check_request as of_cohere

        return of_cohere
    if name == "google":
        from google_double import check_request as of_google

        return lambda asked: of_google(_respell_bytes(asked))
    if name == "anthropic":
        return lambda asked: provider_double.check_messages(_drop_sampling(asked))
    checks = {
        "chat": provider_double.check_chat,
        "openrouter": lambda asked: provider_double.check_chat(_drop_marks(asked)),
        "responses": provider_double.check_responses,
    }
    return checks.get(name, lambda asked: None)


@pytest.mark.parametrize(("name", "feature"), PAIRS)
def test_a_request_is_its_golden_file_and_fits_the_sdks_types(name: str, feature: str) -> None:
    sdk = CLIENTS[name].sdk
    if sdk:
        pytest.importorskip(sdk, reason="its types say what is legal")
    sent = send(name, feature)
    find_check(name)(json.loads(sent))
    path = GOLDEN / name / f"{feature}.json"
    if os.environ.get("FERRULE_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sent)
    assert sent == path.read_bytes()


@pytest.mark.parametrize(
    "name", [name for name in CLIENTS if CLIENTS[name].sdk and "text" in CLIENTS[name].features]
)
def test_the_types_refuse_what_the_provider_would(name: str) -> None:
    pytest.importorskip(CLIENTS[name].sdk, reason="its types say what is legal")
    asked = json.loads((GOLDEN / name / "text.json").read_bytes())
    check = find_check(name)
    check(asked)
    member = "contents" if "contents" in asked else "input" if "input" in asked else "messages"
    for wrong in ({**asked, "unknown_97": 1}, {**asked, member: [{"role": "nobody"}]}):
        with pytest.raises(Exception):  # noqa: B017  each SDK has its own kinds
            check(wrong)
