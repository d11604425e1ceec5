"""Messages for the model from anywhere: a tool's task, a person's keyboard, another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ferrule.core.events import Event, NoticeGiven


class Inbox:
    """The inbox of one session.

    `feed` must be called in the event loop of the run; `loop` is that loop, once there was a run.
    """

    def __init__(self, feed: Callable[[Event], object]) -> None:
        self._feed = feed
        self.loop: asyncio.AbstractEventLoop | None = None

    def put(self, text: str, source: str) -> None:
        """Give the model a notice (`core.notices`). It is written with the next events."""
        notice = NoticeGiven(text, source)
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self.loop is None or self.loop is here or not self.loop.is_running():
            self._feed(notice)
        else:
            self.loop.call_soon_threadsafe(self._feed, notice)
