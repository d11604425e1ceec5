"""Calls that are being carried out, each in its own task, and which of them are to be cancelled."""

from __future__ import annotations

import asyncio
from typing import Any


class RunningCalls:
    """The running calls of one driver.

    Approval requests are kept beside the calls: they are cancelled too, and never picked as the
    newest.
    """

    def __init__(self) -> None:
        self._calls: dict[str, asyncio.Task[Any]] = {}
        self._questions: dict[str, asyncio.Task[Any]] = {}
        self._reasons: dict[str, str] = {}

    def add(self, call_id: str, task: asyncio.Task[Any], *, question: bool) -> None:
        """Keep a task until it is done."""
        kept = self._questions if question else self._calls
        kept[call_id] = task
        task.add_done_callback(lambda _: kept.pop(call_id, None))

    def find_newest(self) -> str:
        """Return the call that was started last; "" if none is running."""
        return next(reversed(self._calls), "")

    def cancel(self, call_id: str, reason: str = "") -> bool:
        """Cancel a call, or its approval request. Return False if it is not running any more."""
        task = self._calls.get(call_id) or self._questions.get(call_id)
        if task is None or not task.cancel():
            return False
        self._reasons[call_id] = reason
        return True

    def take_reason(self, call_id: str) -> str | None:
        """Return why this call was cancelled; None if it was not cancelled by itself.

        To be called once, by the cancelled task.
        """
        return self._reasons.pop(call_id, None)


async def cancel_all(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel all tasks, and wait until they are done."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    await asyncio.gather(*tasks, return_exceptions=True)
