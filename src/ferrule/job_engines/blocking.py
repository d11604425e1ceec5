"""Run a coroutine to its end from code that blocks, whether or not an event loop runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop, and a thread, of its own."""
    with ThreadPoolExecutor(1, thread_name_prefix="ferrule-engine") as thread:
        return thread.submit(asyncio.run, coroutine).result()
