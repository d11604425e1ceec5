"""Models whose replies begin inside reasoning that their prompt opened.

Their chat template ends the prompt with the mark that opens reasoning. They are recognised by
name, since servers do not report it. If the server itself separates reasoning from text, that
takes precedence.
"""

from __future__ import annotations

from ferrule.core.lazy_patterns import compile_lazily

_STARTS_IN_REASONING = compile_lazily(
    r"deepseek[-_.:]?r1|r1-distill|qwq|thinking|minimax[-_]?m[23]|reasoner|deepseek[-_]?v(?:3[.-]?2|[4-9])"
    r"|kimi[-_]?k(?:2[.-][5-9]|[3-9])|qwen-?3[.-][5-9]|glm-?(?:4[.-][7-9]|[5-9])|step-?3[.-][5-9]|nemotron-?3"
)
"""Families whose chat templates end the prompt with the mark that opens reasoning."""


def starts_in_reasoning(name: str) -> bool:
    """Return whether a model is known to begin its reply inside reasoning opened by the prompt."""
    return bool(_STARTS_IN_REASONING.search(name.lower()))
