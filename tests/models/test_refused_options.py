"""Options that a provider knows and a model refuses: said before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.models.client import ModelOptions
from ferrule.models.registry import check_options, create_model_client

SAMPLING = ("temperature", "top_p", "top_k")
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("anthropic:claude-opus-4-7", {"temperature": 0.0}, "from Opus 4.7 on"),
    ("anthropic:claude-opus-5", {"top_p": 0.9}, "from Opus 4.7 on"),
    ("anthropic:claude-sonnet-5-5", {"top_k": 4}, "from Opus 4.7 on"),
    ("anthropic:claude-haiku-5-5-20261001", {"temperature": 1.0}, "from Opus 4.7 on"),
    ("anthropic:claude-mythos-preview", {"temperature": 1.0}, "from Opus 4.7 on"),
    ("bedrock:us.anthropic.claude-opus-4-8-v1:0", {"top_p": 0.9}, "from Opus 4.7 on"),
    ("anthropic:claude-sonnet-4-6", {"temperature": 0.2, "thinking": "high"}, "thinks"),
    ("anthropic:claude-sonnet-4-5", {"temperature": 0.2, "top_p": 0.9}, "one of the two"),
    ("anthropic:claude-fable-5", {"thinking": False}, "kept from thinking"),
    ("anthropic:claude-opus-5-5", {"thinking": False}, "kept from thinking"),
    ("openai:o3-mini", {"temperature": 0.0}, "always reason"),
    ("openai:o4-mini", {"stop": ("END",)}, "no stop texts"),
    ("openai:gpt-5", {"presence_penalty": 1.0}, "always reason"),
    ("openai:gpt-5-mini", {"thinking": False}, "kept from reasoning"),
    ("openai-responses:gpt-5.5-pro", {"top_p": 0.5, "thinking": False}, "always reason"),
    ("openai-responses:gpt-5.5", {"temperature": 0.0}, "`thinking=False` ends"),
    ("openai:gpt-5.2", {"temperature": 0.0, "thinking": "low"}, "while the model reasons"),
)
TAKEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("anthropic:claude-opus-4-6", {"temperature": 0.0}),
    ("anthropic:claude-opus-4-20250514", {"temperature": 0.0, "top_p": 0.9, "top_k": 4}),
    ("anthropic:claude-3-7-sonnet-latest", {"temperature": 0.0, "top_k": 4}),
    ("anthropic:claude-haiku-4-5", {"temperature": 0.0}),
    ("anthropic:claude-sonnet-4-6", {"top_p": 0.95, "thinking": "high"}),
    ("anthropic:claude-sonnet-5", {"thinking": False, "max_tokens": 9, "stop": ("END",)}),
    ("anthropic:claude-opus-5", {"extra": {"temperature": 0.5}}),
    ("anthropic:my-own-model", {"temperature": 0.0}),
    ("bedrock:amazon.nova-pro-v1:0", {"temperature": 0.0, "top_p": 0.9}),
    ("openai:gpt-4o", {"temperature": 0.0, "top_p": 0.9, "stop": ("END",)}),
    ("openai:gpt-5-chat-latest", {"temperature": 0.0}),
    ("openai:gpt-5.2", {"temperature": 0.0}),
    ("openai:gpt-5.5", {"temperature": 0.0, "thinking": False}),
    ("azure:gpt-5", {"temperature": 0.0}),
    ("openrouter:anthropic/claude-opus-5", {"temperature": 0.0}),
)


@pytest.mark.parametrize(("model", "options", "reason"), REFUSED)
def test_an_option_that_a_model_refuses_is_an_error_before_a_request(
    model: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        check_options(model, ModelOptions(**options))
    assert (raised.value.code, "`extra`" in raised.value.hint) == ("model_options", True)


@pytest.mark.parametrize(("model", "options"), TAKEN)
def test_what_a_model_takes_or_may_take_is_sent(model: str, options: dict[str, Any]) -> None:
    check_options(model, ModelOptions(**options))


def test_a_client_names_all_that_its_model_refuses() -> None:
    client = create_model_client("anthropic:claude-opus-5", api_key="k")
    with pytest.raises(ConfigError, match="`temperature`, `top_p`, `top_k`: Claude models"):
        client.open("", [], ModelOptions(temperature=0.1, top_p=0.2, top_k=3))


@pytest.mark.parametrize("model", ["anthropic:claude-opus-4-1", "google:gemini-2.5-flash"])
def test_a_level_of_thinking_that_stands_for_no_number_is_an_error(model: str) -> None:
    client = create_model_client(model, api_key="k")
    with pytest.raises(ConfigError, match="'hihg'") as raised:
        client.open("", [], ModelOptions(thinking="hihg"))
    assert "low, medium, high" in raised.value.hint
