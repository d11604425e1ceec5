"""Calls that are being carried out, each in a task of its own: who they are, and which of them
somebody wants ended.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Going:
    """One driver's. Questions to a person are kept beside the calls: they are ended too, and never
    picked as the newest.
    """

    def __init__(self) -> None:
        self._calls: dict[str, asyncio.Task[Any]] = {}
        self._questions: dict[str, asyncio.Task[Any]] = {}
        self._reasons: dict[str, str] = {}

    def add(self, call_id: str, task: asyncio.Task[Any], *, question: bool) -> None:
        """Until the task is done."""
        kept = self._questions if question else self._calls
        kept[call_id] = task
        task.add_done_callback(lambda _: kept.pop(call_id, None))

    def newest(self) -> str:
        """The call that began last; empty if none is going."""
        return next(reversed(self._calls), "")

    def end(self, call_id: str, reason: str = "") -> bool:
        """End a call, or the question about it. False if it is not going (any more)."""
        task = self._calls.get(call_id) or self._questions.get(call_id)
        if task is None or not task.cancel():
            return False
        self._reasons[call_id] = reason
        return True

    def why(self, call_id: str) -> str | None:
        """Why this call was ended, to be asked once by the task that was cancelled; None if nobody
        ended it by itself.
        """
        return self._reasons.pop(call_id, None)


async def stop(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel all of them, and wait until they are done."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
