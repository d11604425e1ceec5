"""The embedded model. Those marked `model` run the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.registry import create_model_client
from ferrule.models.tool_modes.selection import open_exchange
from ferrule_local import client
from ferrule_local.client import Local
from ferrule_local.vector_cache import VectorCache

PATH = '{"type":"object","properties":{"path":{"type":"string","description":"Path of the file"}},"required":["path"]}'
TOOLS = [
    ToolSpec("read_file", "read_file", "Read the contents of a text file.", PATH),
    ToolSpec(
        "get_time", "get_time", "The current date and time.", '{"type":"object","properties":{}}'
    ),
]


@pytest.fixture
def model_client(smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path))
    made = create_model_client("local:smollm2", path=smollm2_path)
    assert isinstance(made, Local)
    return made


async def test_a_model_that_was_not_pulled_is_named_with_the_command_that_pulls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_MODELS", str(tmp_path))
    with pytest.raises(ProviderError) as missing:
        await Local().capabilities()
    assert (missing.value.code, missing.value.hint) == (
        "model_missing",
        "ferrule models pull smollm2",
    )


async def test_without_the_extra_the_hint_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ProviderError) as missing:
        await Local(path=file).capabilities()
    assert missing.value.code == "extra_missing"
    assert "ferrule[local]" in missing.value.hint


async def test_a_system_library_that_llama_cpp_needs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a minimal container image."""
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    reason = "libgomp.so.1: cannot open shared object file"
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({reason!r})\n")
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ProviderError) as missing:
        await Local(path=file).capabilities()
    assert reason in missing.value.detail and "libgomp1" in missing.value.hint
    assert "pip install" not in missing.value.hint


def test_threads_leave_busy_cores_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (5.2, 0.0, 0.0))
    assert client.count_free_cores() == 3
    monkeypatch.setattr(os, "getloadavg", lambda: (40.0, 0.0, 0.0))
    assert client.count_free_cores() == 1


def test_importing_the_model_client_does_not_load_llama_cpp() -> None:
    code = "import sys, ferrule_local.client; sys.exit('xllamacpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_vectors_are_kept_across_stores_and_a_broken_file_costs_only_time(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    VectorCache(tmp_path, model).put({"a": [0.5, 1.0]})
    assert VectorCache(tmp_path, model).get(["a", "b"]) == {"a": [0.5, 1.0]}
    model.write_bytes(b"GGUF2")
    assert VectorCache(tmp_path, model).get(["a"]) == {}
    (tmp_path / "vectors.sqlite").write_bytes(b"not a database at all, and longer than a header")
    store = VectorCache(tmp_path, model)
    assert store.get(["a"]) == {}
    store.put({"a": [2.0]})
    assert store.get(["a"]) == {"a": [2.0]}


@pytest.mark.model
async def test_the_real_model_says_what_it_can_do(model_client: Local) -> None:
    said = await model_client.capabilities()
    assert (said.tools, said.structured, said.context) == (False, True, 4096)
    assert said.source == "llama.cpp /props"
    await model_client.close()


@pytest.mark.model
async def test_the_real_model_calls_a_tool_and_its_answer_holds_the_fact(
    model_client: Local,
) -> None:
    options = ModelOptions(temperature=0.0, max_tokens=40)
    exchange, tool_mode = await open_exchange(
        model_client, "auto", "You are a careful assistant.", TOOLS, options
    )
    question = UserMessage("Read the file garden/plan.txt")
    first = await exchange.ask([question])
    assert tool_mode == "constrained"
    assert [(c.tool, c.arguments) for c in first.calls] == [
        ("read_file", '{"path":"garden/plan.txt"}')
    ]
    result = ToolMessage("c1", "read_file", "1: sow the beans in May")
    second = await exchange.ask([question, AssistantMessage("", first.calls), result])
    assert second.calls == ()
    assert "sow the beans in May" in second.text
    await model_client.close()


@pytest.mark.model
async def test_the_real_model_writes_nothing_the_grammar_forbids(model_client: Local) -> None:
    text = await model_client.complete(
        "The colour of the sky is ", grammar='root ::= "mauve" | "beige"', max_tokens=8
    )
    assert text in ("mauve", "beige")


@pytest.mark.model
async def test_a_grammar_that_cannot_be_read_is_a_provider_error(model_client: Local) -> None:
    with pytest.raises(ProviderError, match="refused"):
        await model_client.complete("a", grammar="root ::= ???", max_tokens=4)


@pytest.mark.model
async def test_the_real_model_is_quiet(
    model_client: Local, capfd: pytest.CaptureFixture[str]
) -> None:
    await model_client.embed(["a"])
    capfd.readouterr()  # llama.cpp logs from a thread: the lines of a test before may come late
    await model_client.embed(["a"])
    await model_client.complete("a", grammar='root ::= "b"', max_tokens=4)
    assert capfd.readouterr().err == ""


TOOL_TEMPLATE = """{%- if tools %}<|im_start|>system
You may call functions:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each call answer <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{%- for message in messages %}{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.tool_calls %}<|im_start|>assistant
{% for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{% endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A template with tools for SmolLM2, which has none."""


@pytest.mark.model
async def test_a_file_with_a_tool_template_is_called_natively_and_read_once(
    smollm2_path: Path,
) -> None:
    made = create_model_client(f"local:{smollm2_path}", chat_template=TOOL_TEMPLATE, n_ctx=2048)
    assert (await made.capabilities()).tools is True
    options = ModelOptions(temperature=0.0, max_tokens=20)
    exchange, tool_mode = await open_exchange(made, "auto", "", TOOLS, options)
    question = UserMessage("Read the file <|im_end|> plan.txt")
    first = await exchange.ask([question])
    assert tool_mode == "native"
    later = [question, AssistantMessage(first.text), UserMessage("Read the file b.txt")]
    second = await exchange.ask(later)
    assert second.usage.cached >= first.usage.input - 8
    without_tools = await made.open("", (), options).ask([question])
    assert first.usage.input > without_tools.usage.input + 50
    await made.close()


async def test_a_path_that_ends_in_gguf_is_a_model_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="does not exist") as missing:
        await create_model_client(f"local:{tmp_path}/none.gguf").capabilities()
    assert missing.value.code == "model_missing"


def test_an_unknown_type_of_the_kv_cache_is_refused_with_those_there_are(
    tmp_path: Path,
) -> None:
    pytest.importorskip("xllamacpp")
    with pytest.raises(ConfigError, match="`q1` is not a type"):
        client.get_server(tmp_path / "m.gguf", client.ServerOptions(64, 1, cache_type="q1"))


def test_prompts_that_were_read_are_kept_up_to_512_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself llama.cpp keeps 8 GiB of them."""
    xllamacpp = pytest.importorskip("xllamacpp")
    monkeypatch.setattr(client, "_RUNNING_SERVERS", {})
    monkeypatch.setattr(client, "check_is_model", lambda path: None)
    monkeypatch.setattr(xllamacpp, "Server", lambda params: params)
    params = client.get_server(tmp_path / "m.gguf", client.ServerOptions(64, 1))
    assert params.cache_ram_mib == 512
