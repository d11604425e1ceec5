"""Count tokens as OpenAI's newer models do, where the library for it is installed."""

from __future__ import annotations

from collections.abc import Callable


def find_counter() -> tuple[str, Callable[[str], int]]:
    """Return how tokens are counted, and the function that counts those of a text."""
    try:
        import bpe_openai  # pyright: ignore[reportMissingImports]  optional, without types
    except ImportError:
        return "a quarter of the bytes", lambda text: len(text.encode()) // 4
    encoding = bpe_openai.get_encoding("o200k_base")
    return "o200k_base", lambda text: len(encoding.encode(text))
