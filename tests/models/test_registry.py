"""From names to model clients: every provider is found, and what is not a name is told what would be."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, cast

import pytest

import ferrule
from ferrule.core import extras
from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions, ToolBounds
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.registry import (
    PROVIDERS,
    UNIVERSAL_OPTIONS,
    Provider,
    create_model_client,
    list_local_providers,
)
from ferrule.models.scripted import Scripted
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import RecordingSink


def test_names_lead_to_model_clients(tmp_path: Path) -> None:
    script = tmp_path / "talk.yaml"
    script.write_text("- say: hi")
    openai = create_model_client("openai:org/model:tag", base_url="http://127.0.0.1:9/v1")
    assert isinstance(openai, OpenAIChat)
    assert (openai.model_id, openai.model) == ("org/model:tag", "openai:org/model:tag")
    ollama = create_model_client("ollama:llama3.2:1b")
    assert isinstance(ollama, Ollama)
    assert ollama.model == "ollama:llama3.2:1b"
    assert isinstance(create_model_client(f"scripted:{script}"), Scripted)


@pytest.mark.parametrize("name", ["", ":x", "ollama:", "ollama", "nobodys-model"])
def test_a_name_without_its_two_halves_lists_what_would_work(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        create_model_client(name)
    assert raised.value.code == "model"
    for provider in ("openai", "anthropic", "ollama", "local"):
        assert f"{provider}:" in raised.value.hint


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("olama", "`ollama`"),
        ("OpenAI", "`openai`"),
        ("lokal", "`local`"),
        ("claude", "`anthropic`"),
        ("gemini", "`google`"),
        ("watsonx", "`any` (as in `any:watsonx/MODEL`)"),
        ("llama.cpp", "`llamacpp`"),
        ("LM-Studio", "`lmstudio`"),
        ("openruter", "`openrouter`"),
    ],
)
def test_an_unknown_provider_gets_the_nearest_names(wrong: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"`{wrong}` is not a provider") as raised:
        create_model_client(f"{wrong}:x")
    assert f"did you mean {meant}" in raised.value.hint


def test_an_option_that_a_provider_does_not_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="colour"):
        create_model_client("ollama:x", colour="blue")


def test_what_helps_one_model_is_loaded_for_conversations_with_that_model_alone() -> None:
    probe = """
import asyncio, sys
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.registry import create_model_client
from ferrule.models.tool_modes.selection import open_exchange

def is_loaded():
    return any(name.startswith("ferrule_local.small_models") for name in sys.modules)

async def open_modes(name, *modes):
    for mode in modes:
        await open_exchange(create_model_client(name), mode, "", [ToolSpec("a", "a", "A.", "{}")])

asyncio.run(open_modes("ollama:llama3.2", "native", "constrained", "text", "commands"))
asyncio.run(open_modes("local:smollm2", "native", "text", "commands"))
assert not is_loaded()
asyncio.run(open_modes("local:smollm2", "constrained"))
assert is_loaded()
"""
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


ROWS = Path(__file__).parent / "golden" / "providers.json"


def _plain(value: Any) -> Any:
    if isinstance(value, ToolBounds):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, frozenset):
        return sorted(cast("frozenset[str]", value))
    return value


def describe_rows() -> dict[str, dict[str, Any]]:
    """Describe the table of providers: of each row, what is not left at its default."""
    plain = Provider("", "")
    return {
        name: {
            one.name: _plain(value)
            for one in fields(row)
            if (value := getattr(row, one.name)) != getattr(plain, one.name)
        }
        for name, row in PROVIDERS.items()
    }


def test_the_rows_say_what_providers_publish() -> None:
    """Names, addresses and abilities are theirs: only a second copy shows that one was spoiled.

    After a row was changed on purpose, `json.dumps(describe_rows(), indent=1)` is that copy.
    """
    assert json.loads(json.dumps(describe_rows())) == json.loads(ROWS.read_text())
    assert list_local_providers() == {
        "ollama", "local", "lmstudio", "vllm", "sglang", "llamacpp", "scripted",
    }  # fmt: skip


KEYED = [name for name, row in PROVIDERS.items() if row.key_variable and row.needs_key]
MOVABLE = [name for name, row in PROVIDERS.items() if row.key_variable and row.address_variable]


@pytest.mark.parametrize("name", KEYED)
def test_a_client_reads_the_key_that_its_providers_row_names(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PROVIDERS[name]
    with pytest.raises(ConfigError) as raised:
        create_model_client(f"{name}:x")
    assert row.key_variable in raised.value.hint
    monkeypatch.setenv(row.key_variable, "k-123")
    if row.address_variable:
        monkeypatch.setenv(row.address_variable, "http://127.0.0.1:9")
    client: Any = create_model_client(f"{name}:x")
    assert any("k-123" in value for value in client.headers.values())
    assert client.model == f"{name}:x"


@pytest.mark.parametrize("name", MOVABLE)
def test_a_client_reads_the_address_that_its_providers_row_names(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PROVIDERS[name]
    monkeypatch.setenv(row.key_variable, "k")
    monkeypatch.setenv(row.address_variable, "http://127.0.0.1:9")
    client: Any = create_model_client(f"{name}:x")
    assert client.base_url == f"http://127.0.0.1:9{row.api_path}"


PRESETS = [name for name, row in PROVIDERS.items() if row.is_preset]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_needs_its_key_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = PROVIDERS[name]
    if row.needs_key:
        monkeypatch.setenv(row.key_variable, "k")
    if not row.base_url:
        monkeypatch.setenv(row.address_variable, "https://house.example.com/")
    client: Any = create_model_client(f"{name}:x")
    assert client.base_url == (row.base_url or f"https://house.example.com{row.api_path}")
    moved: Any = create_model_client(f"{name}:x", base_url="http://127.0.0.1:9/prefix/v1")
    assert moved.base_url == "http://127.0.0.1:9/prefix/v1"


def test_an_address_of_ones_own_is_asked_for_where_there_is_no_other() -> None:
    with pytest.raises(ConfigError, match="address of your own") as raised:
        create_model_client("azure:x")
    assert "AZURE_OPENAI_ENDPOINT" in raised.value.hint


def test_default_models_are_published_models() -> None:
    prices = pytest.importorskip("genai_prices")
    usage = prices.Usage(input_tokens=1, output_tokens=1)
    for name, row in PROVIDERS.items():
        provider, _, model = row.default_model.partition(":")
        if model:
            assert provider == name
            prices.calc_price(usage, model, provider_id=row.price_name or name)


def test_no_other_table_lists_the_providers() -> None:
    declared = set(metadata("ferrule").get_all("Provides-Extra", []))
    wrong: list[str] = []
    for path in sorted(Path(ferrule.__file__).parent.rglob("*.py")):
        if path.name == "registry.py" and path.parent.name == "models":
            continue
        if path == Path(extras.__file__):
            # Its values name extras of the package, some of which are called like a provider.
            assert set(extras.EXTRAS.values()) <= declared
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            listed = {
                one.value
                for one in ast.iter_child_nodes(node)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
            is_table = isinstance(node, ast.Dict | ast.Set | ast.Tuple | ast.List)
            if is_table and len(listed & PROVIDERS.keys()) > 1:
                wrong.append(f"{path}:{node.lineno}: {sorted(listed & PROVIDERS.keys())}")
    assert not wrong, "\n".join(wrong)


def test_looking_up_names_loads_no_model_client() -> None:
    probe = (
        "import sys, ferrule.models.registry\n"
        "wires = "
        "{'ferrule.models.openai.chat', 'ferrule.models.ollama.client', 'ferrule_local.client'}\n"
        "heavy = {'jiter', 'pyreqwest', 'yaml', 'pydantic', 'ssl', 'xllamacpp'}\n"
        "sys.exit(', '.join(sorted((wires | heavy) & set(sys.modules))) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_option_that_a_provider_does_not_know_is_refused_and_never_dropped() -> None:
    client = create_model_client("anthropic:claude-sonnet-5", api_key="k")
    with pytest.raises(ConfigError, match="`seed`, `logit_bias`") as raised:
        client.open("", [], ModelOptions(seed=7, logit_bias={"1": 2.0}, stop=("END",)))
    assert "`stop`" in raised.value.hint and "`extra`" in raised.value.hint
    for options in (ModelOptions(), ModelOptions(extra={"seed": 7}, timeout=3, num_ctx=9)):
        client.open("", [], options)


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_option_of_a_row_is_an_option(name: str) -> None:
    known = {item.name for item in fields(ModelOptions)}
    assert PROVIDERS[name].options <= known
    assert not PROVIDERS[name].options & UNIVERSAL_OPTIONS


@pytest.mark.parametrize(
    ("model", "wanted", "sent"),
    [
        ("deepseek:x", {"thinking": False}, {"thinking": {"type": "disabled"}}),
        ("deepseek:x", {"thinking": "high"}, {"reasoning_effort": "high"}),
        ("dashscope:x", {"thinking": True}, {"enable_thinking": True}),
        ("vllm:x", {"thinking": True}, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("groq:x", {"thinking": False, "max_tokens": 9}, {"reasoning_effort": "none"}),
        ("groq:x", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("mistral:x", {"seed": 7}, {"random_seed": 7}),
        ("openai:x", {"thinking": True}, {"reasoning_effort": "medium"}),
        ("openai:x", {"cache_key": "k"}, {"prompt_cache_key": "k"}),
        ("xai:x", {"stop": ("END",)}, {"stop": ["END"]}),
    ],
)
def test_an_option_is_spelled_as_the_server_knows_it(
    model: str, wanted: dict[str, Any], sent: dict[str, Any]
) -> None:
    client: Any = create_model_client(model, api_key="k")
    exchange = client.open("", [], ModelOptions(**wanted))
    body = json.loads(exchange.encode_request([UserMessage("Hello")], tools=False))
    assert body | sent == body


def encode(model: str, history: list[Message], **more: Any) -> dict[str, Any]:
    """The request that a preset sends."""

    async def story() -> dict[str, Any]:
        def refuse(request: Request) -> Reply:
            return Reply(status=400, json={"error": {"message": "no"}})

        async with asyncio.timeout(20), HttpDouble(refuse) as server:
            client = create_model_client(model, api_key="k", base_url=server.url)
            exchange = client.open("", [], ModelOptions())
            with pytest.raises(ProviderError):
                await exchange.ask(history, tools=False, **more)
            await client.close()
            return server.requests[-1].json()

    return asyncio.run(story())


def test_a_server_that_refuses_the_question_about_usage_is_not_asked_it() -> None:
    hello: list[Message] = [UserMessage("Hello")]
    assert "stream_options" not in encode("mistral:x", hello, sink=RecordingSink())
    assert encode("groq:x", hello, sink=RecordingSink())["stream_options"] == {
        "include_usage": True
    }


def test_a_server_with_ids_of_nine_characters_gets_such_ids() -> None:
    calls = (ToolCall("call_0123456789", "add", "{}"), ToolCall("abcdefgh9", "add", "{}"))
    history: list[Message] = [
        UserMessage("Hello"),
        AssistantMessage("", calls),
        *[ToolMessage(call.id, "add", "3") for call in calls],
    ]

    def list_ids(model: str) -> tuple[list[str], list[str]]:
        _, asked, *results = encode(model, history)["messages"]
        return [one["id"] for one in asked["tool_calls"]], [one["tool_call_id"] for one in results]

    sent, answered = list_ids("mistral:x")
    assert sent == answered
    assert sent[1] == "abcdefgh9"
    assert re.fullmatch("[0-9a-f]{9}", sent[0])
    assert list_ids("groq:x") == ([call.id for call in calls],) * 2


def test_a_schema_is_called_strict_where_openais_own_models_answer() -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    hello: list[Message] = [UserMessage("Hello")]
    asked = [
        encode(model, hello, schema=schema)["response_format"] for model in ("azure:x", "groq:x")
    ]
    assert [one["json_schema"].get("strict") for one in asked] == [True, None]


@pytest.mark.parametrize("provider", ["openrouter", "litellm", "vercel", "dashscope"])
def test_the_system_text_and_the_moving_end_are_marked_for_the_cache_if_asked(
    provider: str,
) -> None:
    client: Any = create_model_client(f"{provider}:x", api_key="k")
    marked = client.open("Be brief.", [], ModelOptions(cache_control="1h"))
    plain = client.open("Be brief.", [], ModelOptions())
    calls = (ToolCall("t1", "add", "{}"),)
    history = [UserMessage("Hello"), AssistantMessage("", calls), ToolMessage("t1", "add", "3")]
    for length in (1, 3):
        asked = json.loads(marked.encode_request(history[:length], tools=False))["messages"]
        known = json.loads(plain.encode_request(history[:length], tools=False))["messages"]
        mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        for place in (0, -1):
            text = known[place]["content"]
            known[place]["content"] = [{"type": "text", "text": text, **mark}]
        assert asked == known


def test_a_lifetime_of_the_cache_that_nobody_knows_is_an_error() -> None:
    client = create_model_client("openrouter:x", api_key="k")
    client.open("", [], ModelOptions(cache_control="5m"))
    with pytest.raises(ConfigError, match="cache_control = '2h'"):
        client.open("", [], ModelOptions(cache_control="2h"))
    with pytest.raises(ConfigError, match="`cache_control`"):
        create_model_client("openai:x", api_key="k").open("", [], ModelOptions(cache_control="1h"))
