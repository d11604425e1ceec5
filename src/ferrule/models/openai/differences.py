"""How servers of chat completions differ, as the rows of `models.registry` say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ferrule.core.value_class import options

ThinkingSwitch = Literal["template", "type", "field", "effort"]


@options
class ChatDifferences:
    """How a server differs from others that speak chat completions.

    Attributes:
        key_header: The header that carries the key; "" for `Authorization`, with `Bearer`.
        like_openai: Whether options are named as OpenAI names them today, where older servers
            keep their first names.
        stream_usage: Whether the usage of streamed answers is asked for. Some servers refuse the
            question and say it unasked.
        short_call_ids: Whether call ids are sent as nine letters and digits; some servers refuse
            others.
        answers_results: Whether results must be followed by an answer: a user message right after
            them is refused.
        option_names: What the server calls options, where it has names of its own, by the fields
            of `ModelOptions`.
        thinking_switch: How reasoning is switched on and off without a level: `template` (an
            argument of the chat template), `type` (`{"thinking": {"type": …}}`), `field`
            (`enable_thinking`), or `effort` (a level stands for it).
        asks_props: Whether the server may be llama.cpp, which describes its model at `/props`.
    """

    key_header: str = ""
    like_openai: bool = False
    stream_usage: bool = True
    short_call_ids: bool = False
    answers_results: bool = False
    option_names: Mapping[str, str] = field(default_factory=dict[str, str])
    thinking_switch: ThinkingSwitch = "template"
    asks_props: bool = True
