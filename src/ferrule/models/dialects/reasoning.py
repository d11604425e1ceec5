"""The tags that set reasoning apart.

Calls in a block of reasoning are thoughts about calls and do not count. A closing tag without an
opening one makes everything before it reasoning: the prompt had the opening tag (DeepSeek R1, Qwen3
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

OPENING_TAGS = "|".join(map(re.escape, _PAIRS))
"""Opens reasoning, at the start of a line or right after a call."""

LONE_CLOSING_TAGS = "|".join(
    f"(?<! ){re.escape(tag)}|{re.escape(tag)}(?![ .,;:)])" for tag in dict.fromkeys(_PAIRS.values())
)
"""Closes reasoning whose opening tag is missing. Between blanks a tag is only mentioned."""

IMPLICIT_END = re.compile(r"<\|tool_calls_section_begin\|>")
"""Ends reasoning too: Kimi K2 may go on to its section of calls without closing it."""


def closing_tag(opener: str) -> str:
    """Return the tag that closes what `opener` opened."""
    return _PAIRS[opener]
