"""Six servers that people have: tools reach the model on each, and `models probe` says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gateways
import pytest

from ferrule.models.registry import PROVIDERS

SIX: list[tuple[str, Callable[[], gateways.Gateway], str, str]] = [
    ("openai:house-model", gateways.openai, "/v1", "nobody says"),
    ("openai:house-model", gateways.litellm, "/v1", "nobody says"),
    ("litellm:house-model", gateways.litellm, "/v1", "nobody says"),
    ("openai:house/model", gateways.openrouter, "/api/v1", "(source: /models)"),
    ("openrouter:house/model", gateways.openrouter, "/api/v1", "(source: /models)"),
    ("azure:house-model", gateways.azure, "", "nobody says"),
    ("openai:house-model", gateways.vllm, "/v1", "nobody says"),
    ("vllm:house-model", gateways.vllm, "/v1", "nobody says"),
    ("openai:house-model", gateways.llamacpp, "/v1", "(source: /props chat_template_caps)"),
    ("llamacpp:house-model", gateways.llamacpp, "/v1", "(source: /props chat_template_caps)"),
]
NAMES = [f"{model} at {make.__name__}" for model, make, _, _ in SIX]


def configure(own_folders: Path, model: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person's settings for this server, and their key in the environment."""
    provider = model.partition(":")[0]
    monkeypatch.setenv(PROVIDERS[provider].key_variable, gateways.KEY)
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir(exist_ok=True)
    settings = {"model": model, "providers": {provider: {"base_url": address}}}
    file.write_text(json.dumps(settings))


@pytest.mark.parametrize(("model", "make", "path", "why"), SIX, ids=NAMES)
def test_tools_go_to_each_server_in_its_own_field(
    model: str,
    make: Callable[[], gateways.Gateway],
    path: str,
    why: str,
    folder: Path,
    ferrule: Any,
    own_folders: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = make()
    with gateways.served(gateway) as url:
        configure(own_folders, model, f"{url}{path}", monkeypatch)
        for flags in ([], ["--json"], ["--json-stream"]):
            gateway.asked.clear()
            ran = ferrule("run", "What does the note say?", "--allow", "Read", *flags)
            assert ran.code == 0, ran.err
            said = [line for line in ran.lines if '"text.delta"' not in line]
            assert any("It says: one, two." in line for line in said)
            first, second = gateway.asked[:2]
            assert "read_file" in {tool["function"]["name"] for tool in first["tools"]}
            assert "2: two" in second["messages"][-1]["content"]
            assert len(gateway.asked) == 2, "no request beyond the two of the run"
        probed = ferrule("models", "probe", model)
    assert "tool mode    native\n" in probed.out
    explained = probed.out.partition("why ")[2]
    if why == "nobody says":
        why = "(source: live probe)"
    assert why in explained


def test_a_server_that_refuses_tools_says_so_and_another_mode_is_taken(
    folder: Path, ferrule: Any, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = gateways.vllm(with_parser=False)
    with gateways.served(gateway) as url:
        configure(own_folders, "vllm:house-model", f"{url}/v1", monkeypatch)
        ran = ferrule("run", "Hello")
        probed = ferrule("models", "probe", "vllm:house-model")
    assert "native is refused" in ran.err and "--enable-auto-tool-choice" in ran.err
    assert "tools        no\n" in probed.out and "tool mode    native" not in probed.out


@pytest.mark.parametrize(("model", "make", "path", "why"), SIX, ids=NAMES)
def test_the_doctor_checks_the_model_its_key_address_window_and_tool_mode(
    model: str,
    make: Callable[[], gateways.Gateway],
    path: str,
    why: str,
    folder: Path,
    ferrule: Any,
    own_folders: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = make()
    with gateways.served(gateway) as url:
        configure(own_folders, model, f"{url}{path}", monkeypatch)
        found = {one["name"]: one for one in json.loads(ferrule("doctor", "--json").out)}
        assert found["model"]["detail"].startswith(f"{model}: from user (")
        assert found["model.address"]["detail"].startswith(url)
        assert why in found["model.tool_mode"]["detail"]
        assert found["model.tool_mode"]["detail"].startswith("native: ")
        window = {"vllm": "32768", "llamacpp": "16384", "openrouter": "262144"}
        assert window.get(make.__name__, "unknown") in found["model.window"]["detail"]
        if gateway.needs_key and PROVIDERS[model.partition(":")[0]].needs_key:
            assert found["model.key"]["level"] == "ok"
            monkeypatch.setenv(PROVIDERS[model.partition(":")[0]].key_variable, "wrong")
            ran = ferrule("doctor", "--json")
            refused = {one["name"]: one for one in json.loads(ran.out)}
            assert (ran.code, refused["model.key"]["level"]) == (1, "bad")
    ran = ferrule("doctor", "--json")
    gone = {one["name"]: one for one in json.loads(ran.out)}
    assert (ran.code, gone["model.address"]["level"]) == (1, "bad")
