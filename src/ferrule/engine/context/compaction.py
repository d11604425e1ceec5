"""How a conversation is compacted: the event that says it, with what is taken out kept aside and
the summary asked for.

Nothing here decides when (`engine.context.window`), and nothing is changed: whoever asks feeds the
event, or does not. Where to cut is decided in `engine.context.compaction_plan`, what a model reads
in `engine.context.texts`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf
from typing import Protocol

from ferrule.core.errors import FerruleError, ProviderError
from ferrule.core.events import ContextCompacted, ModelAnswered
from ferrule.core.frozen import frozen
from ferrule.core.machine import Machine
from ferrule.core.messages import Message, ToolMessage, UserMessage
from ferrule.engine.budgets import Budgets
from ferrule.engine.dispatcher import Dispatcher
from ferrule.engine.session_log import Log
from ferrule.engine.threads import run_blocking
from ferrule.models.client import Exchange
from ferrule.storage.artifacts.store import Scope

from .compaction_plan import BYTES, STUB, Plan, kept_from, plan, told, weight, words_kept
from .options import Around, ContextOptions
from .texts import REQUEST, SUMMARY, head, reference, stub

GOAL = 5 / 8
"""Of the share at which a conversation is compacted: how full it is to be then."""
FITS = 0.9
"""Of the window: what the question for a summary may take."""
ASIDE = 0.1
"""Of the conversation (of the window, if that is less): what a summary may take, and what the
person's words beside it may.
"""
TOPIC = "context"
"""Of the notices that tell a person."""


class Driven(Protocol):
    """The driver, as far as it matters here. `driving`: a run is under way in this process."""

    machine: Machine
    dispatcher: Dispatcher
    log: Log
    budgets: Budgets | None
    driving: bool

    def reopen(self) -> None:
        """Forget the conversation with the model: the next question opens another."""
        ...


@frozen
class Wish:
    """What is to be compacted: why, from how many tokens, within which bounds, with a summary or
    without.
    """

    why: str
    tokens: int
    around: Around
    option: ContextOptions
    summary: bool

    @property
    def aside(self) -> int:
        """Tokens that a summary may take, and the person's words beside it."""
        return int(ASIDE * min(self.around.window or self.tokens, self.tokens))


class Compactor:
    """One session's. `open` opens a conversation like the session's own, with its hooks."""

    def __init__(self, driver: Driven, open: Callable[[], Awaitable[Exchange]]) -> None:
        self._driver = driver
        self._open = open

    async def event(self, wish: Wish) -> ContextCompacted | None:
        """What a compaction comes to; None where nothing may go. It may leave nothing out: then its
        `note` says why.
        """
        weights, planned = self._planned(wish)
        if not planned.results and not planned.cut:
            return None
        around, share = wish.around, wish.option.share
        event = ContextCompacted(
            why=wish.why, before=wish.tokens, window=around.window, share=share
        )
        if planned.cut:
            event = await self._summed(event, wish, planned, weights)
        return await self._elided(event, planned, weights)

    def _planned(self, wish: Wish) -> tuple[list[int], Plan]:
        machine, around, option = self._driver.machine, wish.around, wish.option
        why, tokens, aside = wish.why, wish.tokens, wish.aside
        history, compaction = machine.history, machine.compaction
        weights = [weight(message) for message in history]
        # What the provider counted is right for the whole: estimates of parts are made to add up to
        # it.
        scale = min(2.0, max(0.3, tokens / max(1, around.taken + sum(weights))))
        weights = [int(size * scale) for size in weights]
        window = around.window or tokens
        # Of a window that nobody knows it is known after a refusal that it is smaller than the
        # question.
        fits = around.window or (tokens // 2 if why == "overflow" else 0)
        most = fits * (FITS - ASIDE) - around.taken if fits else inf
        goals = {"window": window * option.share * GOAL, "overflow": min(window, tokens) * GOAL}
        last = kept_from(history, 1 if why == "overflow" else option.keep)
        words = sum(
            size
            for size, one in zip(weights[:last], history, strict=False)
            if type(one) is UserMessage
        )
        return weights, plan(
            history,
            weights,
            range(compaction.head, last),
            tokens - int(goals.get(why, 0)),
            around=aside + min(aside, words),
            most=most,
            summary=wish.summary,
            wished=why == "person",
            stubbed=lambda index: compaction.is_stub(compaction.number(index)),
        )

    async def _summed(
        self, event: ContextCompacted, wish: Wish, planned: Plan, weights: list[int]
    ) -> ContextCompacted:
        """The event with a summary of the oldest part; without one, if none could be had, and
        why.
        """
        machine, around, room = self._driver.machine, wish.around, wish.aside
        so_full = full(wish.tokens, around.window)
        self._tell(f"{so_full}: the model is asked for a summary of {planned.cut} messages")
        self._driver.log.flush()
        try:
            answer = await self._asked(planned, room)
        except ProviderError as error:
            return replace(event, note=f"{error.detail} ({error.code})")
        text = answer.text.strip()
        if not text or answer.stop == "filter":
            return replace(event, usage=answer.usage, note="the model gave no summary")
        old, most = machine.history[: planned.cut], int(min(SUMMARY, max(400, room * BYTES)))
        compaction = machine.compaction
        parts = told(old, compaction.head, compaction.through + 1)
        kept = await self._keep("".join(parts).encode("utf-8", "replace"))
        whole, through = compaction.whole(machine.history), compaction.number(planned.cut - 1)
        words = words_kept(whole, through, room)
        dropped = sum(isinstance(message, UserMessage) for message in whole[:through]) - len(words)
        text = text if len(text) <= most else f"{text[:most]} [cut here]"
        shown = head(text, around.model, through, dropped, kept, readable=self._readable)
        now = weight(UserMessage(shown)) + sum(weight(whole[number - 1]) for number in words)
        after = max(1, event.before - sum(weights[: planned.cut]) + now)
        return replace(
            event,
            made="summary",
            through=through,
            kept=tuple(words),
            text=shown,
            model=around.model,
            after=after,
            usage=answer.usage,
        )

    async def _asked(self, planned: Plan, room: int) -> ModelAnswered:
        """The model's answer to the request for a summary, in a conversation of its own with the
        same beginning.
        """
        asked: list[Message] = list(self._driver.machine.history[: planned.cut])
        for index in planned.results if planned.light else ():
            message = asked[index] if index < planned.cut else None
            if isinstance(message, ToolMessage):
                size = len(message.text.encode("utf-8", "replace"))
                asked[index] = replace(message, text=stub(message.text, size, "", readable=False))
        driver = self._driver
        # First: whatever becomes of this, the next question opens a conversation of its own, with
        #     its hooks.
        driver.reopen()
        if driver.dispatcher.keeper is not None:
            driver.dispatcher.keeper.settled = planned.cut
        exchange = await self._open()
        words = max(60, room // 2)
        answer = await exchange.ask([*asked, UserMessage(REQUEST.format(words=words))], tools=False)
        driver.log.take(exchange.notices)
        return answer

    async def _elided(
        self, event: ContextCompacted, planned: Plan, weights: list[int]
    ) -> ContextCompacted:
        """The event with the results that no summary stands for; what is taken out is kept where
        there is a store.
        """
        machine = self._driver.machine
        left = [
            index for index in planned.results if machine.compaction.number(index) > event.through
        ]
        stubs: list[str] = []
        for index in left:
            message = machine.history[index]
            assert isinstance(message, ToolMessage)
            data = message.text.encode("utf-8", "replace")
            kept = reference(message.text) or await self._keep(data, message.tool)
            stubs.append(stub(message.text, len(data), kept, readable=self._readable))
        saved = sum(weights[index] - STUB for index in left)
        return replace(
            event,
            elided=tuple(map(machine.compaction.number, left)),
            stubs=tuple(stubs),
            after=max(1, (event.after or event.before) - saved),
        )

    async def _keep(self, data: bytes, tool: str = "") -> str:
        """The reference of what is kept aside; "" where there is no store, or none that takes it,
        which is said.
        """
        keeper = self._driver.dispatcher.keeper
        if keeper is None:
            return ""
        store, scope = keeper.artifacts.store, Scope.of(self._driver.log.identity)
        try:
            kept = await run_blocking(
                lambda: store.put(scope, [data], mime="text/plain", tool=tool)
            )
        except (OSError, FerruleError) as error:
            self._tell(f"what is left out could not be kept as an artifact: {error}")
            return ""
        return kept.reference

    @property
    def _readable(self) -> bool:
        dispatcher = self._driver.dispatcher
        reader = dispatcher.catalog.get("artifact_read")
        return (
            dispatcher.keeper is not None
            and reader is not None
            and not dispatcher.gate.hidden(reader)
        )

    def _tell(self, text: str) -> None:
        self._driver.log.notice(TOPIC, text)


def full(tokens: int, window: int) -> str:
    """How long a conversation is, in words."""
    part = f", {tokens / window:.0%} of the model's window" if window else ""
    return f"the conversation is about {tokens:,} tokens long{part}"


def said(event: ContextCompacted) -> str:
    """A compaction in words, for a person."""
    parts = [f"messages 1 to {event.through} are a summary now"] if event.through else []
    if event.elided:
        count = len(event.elided)
        parts.append(f"{count} old result{' is' if count == 1 else 's are'} left out")
    if not parts:
        return f"nothing was compacted: {event.note}"
    why = {"person": "as you asked", "overflow": "the provider found the question too large"}.get(
        event.why
    )
    why = why or f"more than {event.share:.0%} of the model's window was used"
    note = f"; there is no summary: {event.note}" if event.note else ""
    return (
        f"compacted, from about {event.before:,} to {event.after:,} tokens ({why}): "
        f"{' and '.join(parts)}{note}. "
        "The journal keeps everything; `/uncompact` undoes it"
    )
