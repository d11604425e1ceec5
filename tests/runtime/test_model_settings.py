"""Models to fall back to, and options of requests: from settings and flags to the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.runtime.assemble import assemble


def make_agent(folder: Path, **options: Any) -> Any:
    assembly = assemble(
        {"workspace": str(folder), "model": "openai:gpt-x", **options}, notice=print
    )
    return assembly.agent


def test_fallbacks_are_asked_in_the_order_of_the_flags(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, model_fallbacks=("ollama:a", "ollama:b"))
    names = [agent.model, *(one.name for one in agent.connection.others)]
    assert names == ["openai:gpt-x", "ollama:a", "ollama:b"]
    assert make_agent(tmp_path).connection.fallbacks is None


def test_options_of_requests_are_typed_and_win_over_those_of_the_model(tmp_path: Path) -> None:
    given = ("temperature=0.2", "top_p=0.9", "seed=7", "stop=END", "service_tier=flex")
    options = make_agent(tmp_path, model_options=given).connection.options
    assert (options.temperature, options.top_p, options.seed) == (0.2, 0.9, 7)
    assert (options.stop, options.service_tier, options.top_k) == (("END",), "flex", None)


def test_odds_of_tokens_come_from_the_settings_of_a_model_and_from_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "config"
    own.mkdir()
    (own / "ferrule.yaml").write_text("models: {'openai:gpt-x': {logit_bias: {50256: -100}}}\n")
    monkeypatch.setenv("FERRULE_CONFIG", str(own))
    work = tmp_path / "work"
    work.mkdir()
    agent = make_agent(work)
    assert agent.connection.options.logit_bias == {"50256": -100}
    agent = make_agent(work, model_options=("logit_bias={7: 1.5}",))
    assert agent.connection.options.logit_bias == {"7": 1.5}


def test_members_in_the_providers_own_words_reach_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact = [{"type": "compaction", "compact_threshold": 200_000}]
    given = {"models": {"openai:gpt-x": {"extra": {"context_management": compact}}}}
    own = tmp_path / "config"
    own.mkdir()
    (own / "ferrule.yaml").write_text(json.dumps(given))
    monkeypatch.setenv("FERRULE_CONFIG", str(own))
    work = tmp_path / "work"
    work.mkdir()
    assert make_agent(work).connection.options.extra == {"context_management": compact}
    one = 'extra={"context_management": [{"type": "compaction"}]}'
    agent = make_agent(work, model_options=(one,))
    assert agent.connection.options.extra == {"context_management": [{"type": "compaction"}]}


def test_odds_of_tokens_for_a_provider_that_knows_none_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    agent = make_agent(tmp_path, model="anthropic:claude-x", model_options=("logit_bias={7: 1}",))
    with pytest.raises(ConfigError, match="logit_bias"):
        agent.run_sync("hello")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("temprature=1", "temperature=VALUE"),
        ("top_p=2", "top_p"),
        ("seed", "seed"),
        ("x=1", "NAME="),
        ("logit_bias={cat: 1}", "whole number"),
        ("logit_bias={7: much}", "must be a number"),
        ("logit_bias={7: 101}", "at most 100"),
        ("logit_bias=7", "key: value"),
        ("extra=[compaction]", "key: value"),
    ],
)
def test_an_unknown_option_or_a_wrong_value_is_named(tmp_path: Path, given: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_agent(tmp_path, model_options=(given,))
    assert said in f"{raised.value} {raised.value.hint}"
