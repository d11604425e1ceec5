"""Reasoning set apart by tags: what opens a block, and what closes it.

Calls in a block of reasoning are thoughts about calls: they do not count. A closing tag without an
opening one makes everything before it reasoning (the prompt had the opening tag: DeepSeek R1, Qwen3
thinking, MiniMax).
"""

from __future__ import annotations

import re

_PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<scratch_pad>": "</scratch_pad>",
    "<scratchpad>": "</scratchpad>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<longcat_think>": "</longcat_think>",
    "◁think▷": "◁/think▷",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>thought": "<channel|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
}

OPENS = "|".join(map(re.escape, _PAIRS))
"""What opens reasoning: at the start of a line, or right after a call."""

LONE = "|".join(
    f"(?<! ){re.escape(tag)}|{re.escape(tag)}(?![ .,;:)])" for tag in dict.fromkeys(_PAIRS.values())
)
"""A closing tag that ends reasoning whose opening tag is missing. Between blanks it is a word about
a tag.
"""

IMPLICIT = re.compile(r"<\|tool_calls_section_begin\|>")
"""Kimi K2 may go from reasoning that it never closes to its section of calls."""


def closing(opener: str) -> str:
    """The tag that closes what `opener` opened."""
    return _PAIRS[opener]
