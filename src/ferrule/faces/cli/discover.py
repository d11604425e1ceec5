"""Which models can be used from here: asked of each provider, briefly, all at once."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec

SECONDS = 2.0
"""How long a provider may take to say what it has."""


async def discovered() -> list[str]:
    """A line per model or per reason why there is none."""
    parts = await asyncio.gather(_local(), _ollama(), _openai())
    return [line for part in parts for line in part]


async def _local() -> list[str]:
    from ferrule.models.pull import path

    if find_spec("xllamacpp") is None:
        return ["local:smollm2            needs `pip install 'ferrule[local]'`"]
    if not path("smollm2").exists():
        return ["local:smollm2            needs `ferrule models pull smollm2`"]
    return ["local:smollm2            ready"]


async def _ollama() -> list[str]:
    from ferrule.models.ollama import Ollama

    wire = Ollama("any")
    try:
        async with asyncio.timeout(SECONDS):
            names = await wire.installed()
    except TimeoutError:
        names = []
    finally:
        await wire.close()
    return [f"ollama:{name}" for name in names] or ["ollama:                  nothing there (`ollama serve`, `ollama pull llama3.2`)"]


async def _openai() -> list[str]:
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        return ["openai:                  set OPENAI_API_KEY (and OPENAI_BASE_URL for another server)"]
    return ["openai:MODEL             ready (the key or address is set)"]
