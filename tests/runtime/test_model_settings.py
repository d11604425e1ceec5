"""Models to fall back to, and options of requests: from settings and flags to the agent."""

from __future__ import annotations

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


@pytest.mark.proves("settings.model-fallbacks")
def test_fallbacks_are_asked_in_the_order_of_the_flags(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, model_fallbacks=("ollama:a", "ollama:b"))
    names = [agent.model, *(one.name for one in agent.connection.others)]
    assert names == ["openai:gpt-x", "ollama:a", "ollama:b"]
    assert make_agent(tmp_path).connection.fallbacks is None


@pytest.mark.proves("settings.model-options")
def test_options_of_requests_are_typed_and_win_over_those_of_the_model(tmp_path: Path) -> None:
    given = ("temperature=0.2", "top_p=0.9", "seed=7", "stop=END", "service_tier=flex")
    options = make_agent(tmp_path, model_options=given).connection.options
    assert (options.temperature, options.top_p, options.seed) == (0.2, 0.9, 7)
    assert (options.stop, options.service_tier, options.top_k) == (("END",), "flex", None)


@pytest.mark.proves("settings.model-options")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("temprature=1", "temperature=VALUE"),
        ("top_p=2", "top_p"),
        ("seed", "seed"),
        ("x=1", "NAME="),
    ],
)
def test_an_unknown_option_or_a_wrong_value_is_named(tmp_path: Path, given: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_agent(tmp_path, model_options=(given,))
    assert said in f"{raised.value} {raised.value.hint}"
