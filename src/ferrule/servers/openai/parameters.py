"""What a client may set besides its messages: checked, never silently ignored.

    taken      temperature, top_p, max_tokens, max_completion_tokens, seed, presence_penalty,
               frequency_penalty, reasoning_effort, stop, n (1)
    ignored    store, metadata, user, service_tier, safety_identifier, prompt_cache_key,
               prompt_cache_retention, prediction
    refused    everything else, by its name

A provider's row in `models.registry` says which of the taken parameters it supports; others are
refused for its models.
`stop` is applied here, to the model's output, because a grammar that constrains a reply must not be
cut off by a provider. What is ignored changes no answer: bookkeeping of the API's owner, and hints
for its caches. `user` identifies no one here: the token says who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, cast

from ferrule.core.value_class import frozen
from ferrule.models.client import ModelOptions
from ferrule.models.refused_options import find_refused_options
from ferrule.models.registry import BASIC_OPTIONS, find_provider

from .errors import RequestRefused

MAX_STOPS = 16
_IGNORED = frozenset(
    (
        "store",
        "metadata",
        "user",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prediction",
    )
)
_ELSEWHERE = frozenset(
    (
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "max_completion_tokens",
        "stop",
        "n",
        "reasoning_effort",
    )
)
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_OPTION_NAMES = {"reasoning_effort": "thinking"}
"""Parameters of the API whose names in `ModelOptions` differ."""
_EFFORTS: dict[str, bool | str] = {"none": False, "low": "low", "medium": "medium", "high": "high"}
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "functions": ([],),
}
"""Values of unsupported fields that request nothing: clients send them as defaults."""


@frozen
class Sampling:
    """The model settings a client set, by the names of the API. `stop` lists its stop texts."""

    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stop: tuple[str, ...] = ()

    def apply_to(self, options: ModelOptions, model: str) -> ModelOptions:
        """Apply these settings over the server owner's, whose limit on the answer's length stays.

        Raises:
            RequestRefused: The model or its provider does not take one of them.
        """
        provider = find_provider(model)
        supported = BASIC_OPTIONS if provider is None else provider.options
        for name in self.given:
            if _OPTION_NAMES.get(name, name) not in supported:
                raise RequestRefused(
                    f"`{name}` cannot be set for `{model}`",
                    param=name,
                    code="unsupported_parameter",
                )
        changed = {_OPTION_NAMES.get(name, name): value for name, value in self.given.items()}
        if "thinking" in changed:
            changed["thinking"] = _EFFORTS[changed["thinking"]]
        if "max_tokens" in changed and options.max_tokens is not None:
            changed["max_tokens"] = min(changed["max_tokens"], options.max_tokens)
        applied = replace(options, **changed)
        maker = "" if provider is None else provider.model_maker
        refused, reason = find_refused_options(maker, model, applied, list(changed))
        if refused:
            name = next(name for name in self.given if _OPTION_NAMES.get(name, name) == refused[0])
            raise RequestRefused(
                f"`{name}` cannot be set for `{model}`: {reason}",
                param=name,
                code="unsupported_parameter",
            )
        return applied


def parse_sampling(fields: Mapping[str, Any]) -> Sampling:
    """Parse the settings of a request. Raises RequestRefused for an unknown field."""
    given: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None or name in _ELSEWHERE or name in _IGNORED:
            continue
        if name in _RANGES:
            given[name] = _parse_number(name, value)
        elif name == "seed":
            given[name] = _parse_integer(name, value, least=None)
        elif name == "max_tokens":
            given[name] = _parse_integer(name, value, least=1)
        elif value not in _HARMLESS.get(name, ()):
            raise RequestRefused(
                f"`{name}` is not supported here", param=name, code="unsupported_parameter"
            )
    most = fields.get("max_completion_tokens")
    if most is not None:
        given["max_tokens"] = _parse_integer("max_completion_tokens", most, least=1)
    _check_answer_count(fields.get("n"))
    effort = fields.get("reasoning_effort")
    if effort is not None:
        given["reasoning_effort"] = _parse_effort(effort)
    return Sampling(given, _parse_stops(fields.get("stop")))


def _check_answer_count(count: object) -> None:
    if count not in (None, 1) or count is True:
        raise RequestRefused(
            "`n` can only be 1: one answer per request", param="n", code="unsupported_value"
        )


def _parse_effort(value: object) -> str:
    if not isinstance(value, str) or value not in _EFFORTS:
        raise RequestRefused(
            f"`reasoning_effort` must be one of {', '.join(_EFFORTS)}", param="reasoning_effort"
        )
    return value


def _parse_stops(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    listed: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    if len(listed) > MAX_STOPS or not all(isinstance(one, str) and one for one in listed):
        raise RequestRefused(
            f"`stop` must be a non-empty string, or a list of at most {MAX_STOPS} of them",
            param="stop",
        )
    return tuple(listed)


def _parse_number(name: str, value: object) -> float:
    low, high = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise RequestRefused(f"`{name}` must be a number from {low} to {high}", param=name)
    return value


def _parse_integer(name: str, value: object, *, least: int | None) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or (least is not None and value < least)
    ):
        raise RequestRefused(
            f"`{name}` must be a whole number" + (f" of at least {least}" if least else ""),
            param=name,
        )
    return value
