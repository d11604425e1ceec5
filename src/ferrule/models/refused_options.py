"""Options that a provider's API has and some of its models refuse, by the models' names.

Only what is certain is refused here, before a request; a model that nobody knows is asked, and its
provider decides. `ModelOptions.extra` is not looked at: it sends what this table would refuse.

Sources: Anthropic's page on thinking and its guide for changes of models (from Opus 4.7 on
`temperature`, `top_p` and `top_k` are refused; before, thinking refuses them), which is why the
types of its newest SDK have none of them; OpenAI's guide for reasoning models and the types of its
SDK (`stop`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from ferrule.core.value_class import frozen

from .client import ModelMaker, ModelOptions

_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_OPENAI_SAMPLING = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias"}
)

_NEWER_CLAUDE = r"claude-([a-z]+-(4-[7-9]|[5-9]|[1-9]\d)(?!\d)|mythos)"
_ALWAYS_THINKING_CLAUDE = r"claude-(fable|mythos|opus-5-5)"
_ONE_OF_TWO_CLAUDE = r"claude-[a-z]+-4-[156](?!\d)"
_ALWAYS_REASONING_GPT = (
    r"(o[134](-|$)|gpt-5(-(mini|nano|pro|codex|20\d\d)|$)|gpt-5\.\d+-(pro|chat)"
    r"|gpt-5\.1-codex|gpt-6-astra|gpt-6\.1-sol)"
)
_REASONING_GPT = r"(gpt-5\.[5-9]|gpt-[6-9])"
_SOMETIMES_REASONING_GPT = r"gpt-5\.[1-4]"


def _always(options: ModelOptions) -> bool:
    return True


def _is_thinking_off(options: ModelOptions) -> bool:
    return options.thinking in (False, "none")


def _is_thinking_on(options: ModelOptions) -> bool:
    return options.thinking is not None and not _is_thinking_off(options)


def _has_both(options: ModelOptions) -> bool:
    return options.temperature is not None and options.top_p is not None


def _may_think(options: ModelOptions) -> bool:
    return not _is_thinking_off(options)


@frozen
class _Rule:
    """What some models of a maker refuse.

    Attributes:
        maker: Who made them.
        models: A pattern for the names of the models.
        names: The options.
        reason: Why, as the end of a sentence.
        applies: Whether they are refused with the other options as they are.
    """

    maker: ModelMaker
    models: str
    names: frozenset[str]
    reason: str
    applies: Callable[[ModelOptions], bool] = _always


_THINKING = frozenset({"thinking"})
_RULES: tuple[_Rule, ...] = (
    _Rule(
        "Anthropic",
        _NEWER_CLAUDE,
        _SAMPLING,
        "Claude models from Opus 4.7 on take no such option",
    ),
    _Rule(
        "Anthropic",
        r"claude-([a-z]+-)?\d",
        frozenset({"temperature", "top_k"}),
        "it cannot be set while the model thinks",
        _is_thinking_on,
    ),
    _Rule(
        "Anthropic",
        _ONE_OF_TWO_CLAUDE,
        frozenset({"temperature", "top_p"}),
        "it takes one of the two alone",
        _has_both,
    ),
    _Rule(
        "Anthropic",
        _ALWAYS_THINKING_CLAUDE,
        _THINKING,
        "this model cannot be kept from thinking",
        _is_thinking_off,
    ),
    _Rule(
        "OpenAI",
        _ALWAYS_REASONING_GPT,
        _OPENAI_SAMPLING,
        "models that always reason take no such option",
    ),
    _Rule(
        "OpenAI",
        _ALWAYS_REASONING_GPT,
        _THINKING,
        "this model cannot be kept from reasoning",
        _is_thinking_off,
    ),
    _Rule(
        "OpenAI",
        _REASONING_GPT,
        _OPENAI_SAMPLING,
        "it cannot be set while the model reasons, which `thinking=False` ends",
        _may_think,
    ),
    _Rule(
        "OpenAI",
        _SOMETIMES_REASONING_GPT,
        _OPENAI_SAMPLING,
        "it cannot be set while the model reasons",
        _is_thinking_on,
    ),
    _Rule("OpenAI", r"o[34](-|$)", frozenset({"stop"}), "reasoning models take no stop texts"),
)


def find_refused_options(
    maker: ModelMaker, model: str, options: ModelOptions, names: Sequence[str]
) -> tuple[list[str], str]:
    """Return which options a model refuses, and why; empty if it is not known to refuse any.

    Args:
        maker: Who made it (`models.registry`).
        model: The model's full name.
        options: Its options.
        names: The names of those that are set.
    """
    model_id = model.partition(":")[2]
    for rule in _RULES:
        if rule.maker != maker or not _compile(rule.models).search(model_id):
            continue
        refused = [name for name in names if name in rule.names] if rule.applies(options) else []
        if refused:
            return refused, rule.reason
    return [], ""


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    # A model's name begins there, or behind a region and a maker (`eu.anthropic.claude-…`).
    return re.compile(rf"(^|[./]){pattern}")
