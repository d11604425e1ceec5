"""Room in a model's window: when a conversation is compacted, how, and who is told.

Rules of this file, each a promise with a test:

* Before a question that would take more than a share of the window, old results are elided, and if
  that is not enough, the model is asked for a summary of the oldest part. Then there is room for a
  while: a compaction costs the provider's cache once.
* What is compacted, how and why stands in the journal as one event before anything follows from it;
  nothing leaves the journal. A person is told in a notice. A compaction that was cut off left no
  trace, and is made again when it is needed.
* The model's summary is an answer like any other: asked for in the same conversation, with the same
  hooks, counted in tokens and money. Where there is none, only results are elided, and that is
  said.
* A person's undoing holds: it is compacted by itself again only when the window is all but full.

How full the window is costs nothing to ask while it is far from full: `tokens` is what the provider
counted of the last answer and a token for each character since, which is more than it can be; only
where that is too many is it estimated.
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
"""Tokens from which on the window is looked up: no model's is so small that this is much of it."""
UNDONE = 0.95
"""The share at which it is compacted again although a person undid it."""
STEP = 0.05
"""Of the window: how much must be new before it is tried again where nothing more could be left
out.
"""
PASSES = 3
"""Summaries before one question at the most: where not all of the old part fits into one."""


class Room:
    """One session's. The driver counts in it: `tokens` at the most, of the first `counted`
    messages; up to `most` they pass.

    `known` is what the provider counted last, of the first `base` messages and all that is around
    them.
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
        # While it is held, a question waits: it would go to the conversation that is opened for a
        # summary, past its hooks.
        self._making = asyncio.Lock()
        self.forget()

    def forget(self) -> None:
        """The conversation is opened anew, maybe with another model: what is known of it is looked
        up again.
        """
        self.tokens = self.counted = self.known = self.base = self._least = 0
        self.most: float = -1 if self._making.locked() else LOOK

    # ---- what callers ask for

    async def compact(self, *, summary: bool = True) -> ContextCompacted | None:
        """Compact as much as may go, at a person's wish; None if nothing may. While a run is under
        way it is done before the next question, and the answer is None, too. Where the model gives
        no summary, the event's `note` says why.
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
        """Undo all that was compacted; False if nothing was. Raises ConfigError while a run is
        under way.
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
        """What fills the model's window now, by kind. Asks no model, and writes nothing."""
        async with self._making:
            await self._look_around()
            return measure(self._driver.machine, self._around, self._estimate(), bool(self.known))

    # ---- what the driver asks for

    async def make(self) -> list[Command]:
        """Before a question that may be too large: make room if it is. Commands end the run: its
        budget is used up.
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
        """After the provider refused a question as too large: make room, once for a question. None
        if none could be made.
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

    # ---- how

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
        """One compaction: the event if it changed anything, and the end of the run if it used up a
        budget.
        """
        summary, self._wanted = "elide" not in (self._wanted, self.option.compact), ""
        machine, log, budgets = self._driver.machine, self._driver.log, self._driver.budgets
        before = machine.history
        event = await self._compactor.event(Wish(why, tokens, self._around, self.option, summary))
        if event is None:
            if why == "person":
                self._tell("nothing is compacted: the last messages stay as they are")
                log.flush()
            return None, []
        if machine.history is not before:
            # Compacted meanwhile by somebody else: these places are not what they were. What it
            # took is counted.
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
        """Tokens of the next question: what was counted, and an estimate of what is new."""
        history = self._driver.machine.history
        if self.known and self.base <= len(history):
            return self.known + sum(map(weight, history[self.base :]))
        return self._around.taken + sum(map(weight, history))

    def _anew(self, tokens: int = 0) -> None:
        """The history is another list: the next question goes to a conversation of its own."""
        driver, count = self._driver, len(self._driver.machine.history)
        if driver.dispatcher.keeper is not None:
            # What it holds was checked when it was new, or is ours.
            driver.dispatcher.keeper.settled = count
        driver.reopen()
        self.known = self.tokens = tokens
        self.counted = self.base = count if tokens else 0

    def _tell(self, text: str) -> None:
        self._driver.log.notice(TOPIC, text)
