"""Models whose replies begin inside reasoning, because their chat template ends the prompt with the
mark that opens it.

Known by name: a server says nothing of it. Where it sets reasoning apart itself, that comes first,
and the text is text.
"""

from __future__ import annotations

import re

_HEADLESS = re.compile(
    r"deepseek[-_.:]?r1|r1-distill|qwq|thinking|minimax[-_]?m[23]|reasoner|deepseek[-_]?v(?:3[.-]?2|[4-9])"
    r"|kimi[-_]?k(?:2[.-][5-9]|[3-9])|qwen-?3[.-][5-9]|glm-?(?:4[.-][7-9]|[5-9])|step-?3[.-][5-9]|nemotron-?3"
)
"""Families whose chat templates end the prompt with the mark that opens reasoning."""


def starts_thinking(name: str) -> bool:
    """Whether a model is known to begin its reply inside reasoning that its prompt opened."""
    return bool(_HEADLESS.search(name.lower()))
