"""The context window: when a conversation is compacted, and who is told.

Rules of this file, each a promise with a test:

* Before a request that would take more than a share of the window, old results are elided; if that
  is not enough, the model is asked for a summary of the oldest part. Then there is room for a
  while: each compaction costs the provider's cache once.
* What is compacted, how and why is in the journal as one event before anything follows from it;
  nothing leaves the journal. A person is told in a notice. A compaction that was interrupted leaves
  no trace, and is made again when it is needed.
* The model's summary is an answer like any other: asked for in the same conversation, with the same
  hooks, counted in tokens and money. If there is none, only results are elided, and a notice says
  so.
* A person's undo holds: the conversation is compacted again only when the window is almost full.

How full the window is costs nothing to check while it is far from full: `tokens` is what the
provider counted of the last answer plus one token for each character since, which is an upper
bound; only when that is too many is it estimated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import inf

from ferrule.core.commands import Command
from ferrule.core.errors import ConfigError
from ferrule.core.events import ContextCompacted, ContextRestored, Event, Usage
from ferrule.core.media import estimate_media_tokens
from ferrule.core.messages import AssistantMessage, Message
from ferrule.core.vocabulary import CompactionReason
from ferrule.models.client import Exchange

from .compaction import (
    TOPIC,
    CompactedSession,
    CompactionRequest,
    Compactor,
    describe,
    describe_fullness,
)
from .compaction_plan import estimate_tokens
from .options import ContextOptions, MeasureWindow, WindowSurroundings
from .usage import ContextUsage, measure_usage

MIN_TOKENS_TO_CHECK = 1500
"""The window is looked up from this many tokens on: no model's is so small that this is much of it.
"""
SHARE_AFTER_UNDO = 0.95
"""Share of the window at which it is compacted again after a person's undo."""
RETRY_SHARE = 0.05
"""Share of the window that must be new before another attempt, if nothing more could be left out.
"""
MAX_REFUSALS = 4
"""How often room is made for one request that the provider finds too large."""
MAX_SUMMARIES = 3
"""Maximum number of summaries before one request, if not all of the old part fits into one."""


class ContextWindow:
    """The context window of one session.

    `tokens` is an upper bound for the first `counted` messages; requests of up to `most` tokens
    pass unchecked. `known` is what the provider counted last, for the first `base` messages and
    everything around them.
    """

    def __init__(
        self,
        driver: CompactedSession,
        feed: Callable[[Event], list[Command]],
        open: Callable[[], Awaitable[Exchange]],
        options: ContextOptions,
        measure: MeasureWindow,
    ) -> None:
        self.options = options
        self._driver = driver
        self._feed = feed
        self._compactor = Compactor(driver, open)
        self._measure_window = measure
        self._around = WindowSurroundings()
        self._wanted = ""
        self._refused = 0
        self._refusals = 0
        # While it is held, a request waits: it would go to the exchange that is opened for a
        # summary, past its hooks.
        self._making = asyncio.Lock()
        self.reset()

    def reset(self) -> None:
        """Reset: the exchange is opened anew, maybe with another model and window."""
        self._set_counted(0, 0)
        self._least = 0
        self.most: float = -1 if self._making.locked() else MIN_TOKENS_TO_CHECK

    # ---- for callers

    async def compact(self, *, summary: bool = True) -> ContextCompacted | None:
        """Compact as much as possible, on demand.

        Returns:
            The event; its `note` says why if the model gave no summary. None if nothing can be left
            out, or while a run is under way: then it is done before the next request.
        """
        self._wanted = "summary" if summary else "elide"
        if self._driver.is_running:
            self.most = -1
            return None
        async with self._making:
            self.most = -1
            await self._measure()
            return (await self._compact("person", self._estimate()))[0]

    def restore(self, by: str) -> bool:
        """Undo all compaction.

        Returns:
            False if nothing was compacted.

        Raises:
            ConfigError: A run is under way.
        """
        if self._driver.is_running:
            raise ConfigError(
                "the context cannot be restored: a run is under way", hint="wait for it, or stop it"
            )
        if not self._driver.machine.compaction.is_active:
            return False
        self._feed(ContextRestored(by))
        self._reset()
        self._notify("what was compacted is undone: the model is sent the whole conversation again")
        self._driver.log.flush()
        return True

    async def usage(self) -> ContextUsage:
        """Return what fills the model's window now, by kind. Asks no model, and writes nothing."""
        async with self._making:
            await self._measure()
            return measure_usage(
                self._driver.machine, self._around, self._estimate(), bool(self.known)
            )

    # ---- for the driver

    def count_messages(self, history: Sequence[Message]) -> None:
        """Count the messages that are new since the last request."""
        for message in history[self.counted :]:
            self.tokens += len(message.text)
            if not isinstance(message, AssistantMessage) and message.media:
                self.tokens += estimate_media_tokens(message.media)
        self.counted = len(history)

    def record_usage(self, usage: Usage, count: int) -> None:
        """Take over what the provider counted for a request and its answer, `count` messages."""
        if usage.input:
            self._set_counted(usage.input + usage.output, count)

    def _set_counted(self, tokens: int, count: int) -> None:
        self.known = tokens
        self.tokens = tokens
        self.counted = count
        self.base = count

    async def make_room(self) -> list[Command]:
        """Make room, if the next request may be too large.

        Returns commands only if they end the run because its budget is used up.
        """
        async with self._making:
            return await self._make_room()

    async def _make_room(self) -> list[Command]:
        window = await self._measure()
        self.tokens = tokens = self._estimate()
        if self._wanted:
            return (await self._compact("person", tokens))[1]
        share = (
            SHARE_AFTER_UNDO if self._driver.machine.compaction.is_undone else self.options.share
        )
        self.most = max(window * share, self._least) if window else inf
        if tokens <= self.most:
            return []
        if self.options.compact == "off":
            self.most = inf
            self._notify(
                f"{describe_fullness(tokens, self._around.window)}; nothing is left out "
                "(`context.compact` is off)"
            )
            return []
        return await self._compact_until(self.most, tokens)

    async def handle_overflow(self) -> list[Command] | None:
        """Make room after the provider refused a request as too large.

        Again if it refuses what is left of it, up to `MAX_REFUSALS` times: a session may go on with
        a model whose window is a fraction of the one before, and of unknown size.

        Returns None if no room could be made.
        """
        machine = self._driver.machine
        before = machine.history
        asked = len(machine.compaction.full_history(before))
        if asked != self._refused:
            self._refused = asked
            self._refusals = 0
        self._refusals += 1
        if self.options.compact == "off" or self._refusals > MAX_REFUSALS:
            return None
        async with self._making:
            await self._measure()
            ended = (await self._compact("overflow", max(self.known, self._estimate())))[1]
        return ended if machine.history is not before or ended else None

    # ---- internals

    async def _compact_until(self, most: float, tokens: int) -> list[Command]:
        for _ in range(MAX_SUMMARIES):
            made, ended = await self._compact("window", tokens)
            if ended:
                return ended
            if made is None:
                break
            tokens = made.after
            if tokens <= most:
                return []
        self._least = tokens + int(RETRY_SHARE * self._around.window)
        self._notify(
            f"{describe_fullness(tokens, self._around.window)}, and no more can be left out of it"
        )
        self._driver.log.flush()
        return []

    async def _compact(
        self, why: CompactionReason, tokens: int
    ) -> tuple[ContextCompacted | None, list[Command]]:
        """Compact once.

        Returns:
            The event if it changed anything, and the commands that end the run if it used up a
            budget.
        """
        summary = "elide" not in (self._wanted, self.options.compact)
        self._wanted = ""
        machine = self._driver.machine
        log = self._driver.log
        budgets = self._driver.budgets
        before = machine.history
        event = await self._compactor.compact(
            CompactionRequest(why, tokens, self._around, self.options, summary)
        )
        if event is None:
            if why == "person":
                self._notify("nothing is compacted: the last messages stay as they are")
                log.flush()
            return None, []
        if machine.history is not before:
            # Somebody else compacted meanwhile, so these places are no longer valid. The tokens
            # that were used are counted.
            event = ContextCompacted(why=why, usage=event.usage, note="it was compacted meanwhile")
        before = machine.history
        ended = self._feed(event) if budgets is None else budgets.count_answer(event, self._feed)
        changed = machine.history is not before
        self._reset(event.after if changed else tokens)
        self._notify(describe(event))
        log.flush()
        return (event if changed else None), ended

    async def _measure(self) -> int:
        self._around = await self._measure_window()
        return self._around.window

    def _estimate(self) -> int:
        """Estimate the tokens of the next request: the provider's count plus what is new."""
        history = self._driver.machine.history
        if self.known and self.base <= len(history):
            return self.known + sum(map(estimate_tokens, history[self.base :]))
        return self._around.used + sum(map(estimate_tokens, history))

    def _reset(self, tokens: int = 0) -> None:
        """Start again with the changed history: the next request opens another exchange."""
        driver = self._driver
        count = len(driver.machine.history)
        if driver.dispatcher.artifact_intake is not None:
            # Its messages were checked when they were new, or are ours.
            driver.dispatcher.artifact_intake.trust_messages(count)
        driver.reset_exchange()
        self._set_counted(tokens, count if tokens else 0)

    def _notify(self, text: str) -> None:
        self._driver.log.notice(TOPIC, text)
