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
from collections.abc import Awaitable, Callable
from math import inf

from ferrule.core.commands import Command
from ferrule.core.errors import ConfigError
from ferrule.core.events import ContextCompacted, ContextRestored, Event
from ferrule.models.client import Exchange

from .compaction import TOPIC, Compactor, Driven, Wish, full, said
from .compaction_plan import weight
from .options import Around, ContextOptions, LookAround
from .usage import ContextUsage, measure

LOOK = 1500
"""The window is looked up from this many tokens on: no model's is so small that this is much of it.
"""
UNDONE = 0.95
"""Share of the window at which it is compacted again after a person's undo."""
STEP = 0.05
"""Share of the window that must be new before another attempt, if nothing more could be left out.
"""
PASSES = 3
"""Maximum number of summaries before one request, if not all of the old part fits into one."""


class Room:
    """The context window of one session.

    The driver counts in it: `tokens` is an upper bound for the first `counted` messages; requests
    of up to `most` tokens pass unchecked. `known` is what the provider counted last, for the first
    `base` messages and everything around them.
    """

    def __init__(
        self,
        driver: Driven,
        feed: Callable[[Event], list[Command]],
        open: Callable[[], Awaitable[Exchange]],
        option: ContextOptions | None,
        look: LookAround | None,
    ) -> None:
        self.option = option or ContextOptions()
        self._driver = driver
        self._feed = feed
        self._compactor = Compactor(driver, open)
        self._look = look
        self._around = Around()
        self._wanted = ""
        self._refused = 0
        # While it is held, a request waits: it would go to the exchange that is opened for a
        # summary, past its hooks.
        self._making = asyncio.Lock()
        self.forget()

    def forget(self) -> None:
        """Reset: the exchange is opened anew, maybe with another model and window."""
        self.tokens = self.counted = self.known = self.base = self._least = 0
        self.most: float = -1 if self._making.locked() else LOOK

    # ---- for callers

    async def compact(self, *, summary: bool = True) -> ContextCompacted | None:
        """Compact as much as possible, on demand.

        Returns:
            The event; its `note` says why if the model gave no summary. None if nothing can be left
            out, or while a run is under way: then it is done before the next request.
        """
        self._wanted = "summary" if summary else "elide"
        if self._driver.driving:
            self.most = -1
            return None
        async with self._making:
            self.most = -1
            await self._look_around()
            return (await self._compact("person", self._estimate()))[0]

    def restore(self, by: str) -> bool:
        """Undo all compaction.

        Returns:
            False if nothing was compacted.

        Raises:
            ConfigError: A run is under way.
        """
        if self._driver.driving:
            raise ConfigError(
                "the context cannot be restored: a run is under way", hint="wait for it, or stop it"
            )
        if not self._driver.machine.compaction.active:
            return False
        self._feed(ContextRestored(by))
        self._anew()
        self._tell("what was compacted is undone: the model is sent the whole conversation again")
        self._driver.log.flush()
        return True

    async def usage(self) -> ContextUsage:
        """Return what fills the model's window now, by kind. Asks no model, and writes nothing."""
        async with self._making:
            await self._look_around()
            return measure(self._driver.machine, self._around, self._estimate(), bool(self.known))

    # ---- for the driver

    async def make(self) -> list[Command]:
        """Make room, if the next request may be too large.

        Returns commands only if they end the run because its budget is used up.
        """
        async with self._making:
            return await self._made()

    async def _made(self) -> list[Command]:
        window = await self._look_around()
        self.tokens = tokens = self._estimate()
        if self._wanted:
            return (await self._compact("person", tokens))[1]
        share = UNDONE if self._driver.machine.compaction.undone else self.option.share
        self.most = max(window * share, self._least) if window else inf
        if tokens <= self.most:
            return []
        if self.option.compact == "off":
            self.most = inf
            self._tell(
                f"{full(tokens, self._around.window)}; nothing is left out "
                "(`context.compact` is off)"
            )
            return []
        return await self._until(self.most, tokens)

    async def overflowed(self) -> list[Command] | None:
        """Make room after the provider refused a request as too large, once for a request.

        Returns None if no room could be made.
        """
        machine = self._driver.machine
        before = machine.history
        asked = len(machine.compaction.whole(before))
        if self.option.compact == "off" or self._refused == asked:
            return None
        self._refused = asked
        async with self._making:
            await self._look_around()
            ended = (await self._compact("overflow", max(self.known, self._estimate())))[1]
        return ended if machine.history is not before or ended else None

    # ---- internals

    async def _until(self, most: float, tokens: int) -> list[Command]:
        for _ in range(PASSES):
            made, ended = await self._compact("window", tokens)
            if ended:
                return ended
            if made is None:
                break
            tokens = made.after
            if tokens <= most:
                return []
        self._least = tokens + int(STEP * self._around.window)
        self._tell(f"{full(tokens, self._around.window)}, and no more can be left out of it")
        self._driver.log.flush()
        return []

    async def _compact(
        self, why: str, tokens: int
    ) -> tuple[ContextCompacted | None, list[Command]]:
        """Compact once.

        Returns:
            The event if it changed anything, and the commands that end the run if it used up a
            budget.
        """
        summary = "elide" not in (self._wanted, self.option.compact)
        self._wanted = ""
        machine = self._driver.machine
        log = self._driver.log
        budgets = self._driver.budgets
        before = machine.history
        event = await self._compactor.event(Wish(why, tokens, self._around, self.option, summary))
        if event is None:
            if why == "person":
                self._tell("nothing is compacted: the last messages stay as they are")
                log.flush()
            return None, []
        if machine.history is not before:
            # Somebody else compacted meanwhile, so these places are no longer valid. The tokens
            # that were used are counted.
            event = ContextCompacted(why=why, usage=event.usage, note="it was compacted meanwhile")
        before = machine.history
        ended = self._feed(event) if budgets is None else budgets.answered(event, self._feed)
        changed = machine.history is not before
        self._anew(event.after if changed else tokens)
        self._tell(said(event))
        log.flush()
        return (event if changed else None), ended

    async def _look_around(self) -> int:
        self._around = Around() if self._look is None else await self._look()
        return self._around.window

    def _estimate(self) -> int:
        """Estimate the tokens of the next request: the provider's count plus what is new."""
        history = self._driver.machine.history
        if self.known and self.base <= len(history):
            return self.known + sum(map(weight, history[self.base :]))
        return self._around.taken + sum(map(weight, history))

    def _anew(self, tokens: int = 0) -> None:
        """Start again with the changed history: the next request opens another exchange."""
        driver = self._driver
        count = len(driver.machine.history)
        if driver.dispatcher.keeper is not None:
            # Its messages were checked when they were new, or are ours.
            driver.dispatcher.keeper.settled = count
        driver.reopen()
        self.known = self.tokens = tokens
        self.counted = self.base = count if tokens else 0

    def _tell(self, text: str) -> None:
        self._driver.log.notice(TOPIC, text)
