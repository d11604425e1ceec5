"""Compact a conversation: make the event, keep what is left out, and ask for the summary.

Nothing here decides when (`engine.context.window`), and nothing is changed: the caller feeds the
event to the machine, or not. Where to cut is decided in `engine.context.compaction_plan`; what a
model reads is in `engine.context.texts`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf
from typing import Protocol

from ferrule.core.compaction import replace_media
from ferrule.core.errors import FerruleError, ProviderError
from ferrule.core.events import ContextCompacted, ModelAnswered
from ferrule.core.machine import Machine
from ferrule.core.messages import ToolMessage, UserMessage
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import CompactionReason
from ferrule.engine.budgets import Budgets
from ferrule.engine.dispatcher import Dispatcher
from ferrule.engine.session_log import SessionLog
from ferrule.engine.stopping import check_stop
from ferrule.engine.threads import run_blocking
from ferrule.models.client import Exchange
from ferrule.storage.artifacts.store import Scope

from .compaction_plan import (
    BYTES_PER_TOKEN,
    STUB_TOKENS,
    CompactionGoal,
    MeasuredHistory,
    Plan,
    collect_messages,
    estimate_tokens,
    find_kept_start,
    plan_compaction,
    render_history,
)
from .options import ContextOptions, WindowSurroundings
from .texts import (
    MAX_SUMMARY,
    SUMMARY_REQUEST,
    build_result_stub,
    build_summary_message,
    find_reference,
)

TARGET_SHARE = 5 / 8
"""Share of the compaction threshold that the conversation should fill afterwards."""
REQUEST_SHARE = 0.9
"""Share of the window that the request for a summary may take."""
SUMMARY_SHARE = 0.1
"""Share of the conversation (or of the window, if smaller) for a summary.

The person's messages that are kept beside it may take as much again.
"""
TOPIC = "context"
"""The topic of notices for a person."""


class CompactedSession(Protocol):
    """The driver, as far as compaction is concerned.

    `is_running` says whether a run is under way in this process.
    """

    machine: Machine
    dispatcher: Dispatcher
    log: SessionLog
    budgets: Budgets | None
    is_running: bool

    def reset_exchange(self) -> None:
        """Forget the conversation with the model: the next request opens another."""
        ...


@frozen
class CompactionRequest:
    """What is to be compacted: why, from how many tokens, and whether with a summary."""

    reason: CompactionReason
    tokens: int
    surroundings: WindowSurroundings
    options: ContextOptions
    summary: bool

    @property
    def summary_tokens(self) -> int:
        """Tokens that a summary may take; the person's messages beside it may take as much."""
        return int(SUMMARY_SHARE * min(self.surroundings.window or self.tokens, self.tokens))


class Compactor:
    """Compacts one session. `open` opens an exchange like the session's own, with its hooks."""

    def __init__(self, driver: CompactedSession, open: Callable[[], Awaitable[Exchange]]) -> None:
        self._driver = driver
        self._open = open

    async def compact(self, request: CompactionRequest) -> ContextCompacted | None:
        """Return the event of a compaction; None if nothing can be left out.

        The event may leave nothing out: then its `note` says why.
        """
        weights, planned = self._plan(request)
        if not planned.results and not planned.cut:
            return None
        event = ContextCompacted(
            why=request.reason,
            before=request.tokens,
            window=request.surroundings.window,
            share=request.options.share,
        )
        if planned.cut:
            event = await self._summarize(event, request, planned, weights)
        return await self._elide(event, planned, weights)

    def _plan(self, request: CompactionRequest) -> tuple[list[int], Plan]:
        around = request.surroundings
        option = request.options
        why = request.reason
        tokens = request.tokens
        aside = request.summary_tokens
        history = self._driver.machine.history
        compaction = self._driver.machine.compaction
        weights = [estimate_tokens(message) for message in history]
        # The provider's count of the whole is right: scale the estimates of the parts to it.
        scale = min(2.0, max(0.3, tokens / max(1, around.used + sum(weights))))
        weights = [int(size * scale) for size in weights]
        window = around.window or tokens
        # After a refusal, a window of unknown size is known to be smaller than the request.
        fits = around.window
        if not fits and why == "overflow":
            fits = tokens // 2
        most = fits * (REQUEST_SHARE - SUMMARY_SHARE) - around.used if fits else inf
        goals = {
            "window": window * option.share * TARGET_SHARE,
            "overflow": min(window, tokens) * TARGET_SHARE,
        }
        last = find_kept_start(history, 1 if why == "overflow" else option.keep)
        words = sum(
            size
            for size, one in zip(weights[:last], history, strict=False)
            if type(one) is UserMessage
        )
        measured = MeasuredHistory(
            history,
            weights,
            range(compaction.head_length, last),
            lambda index: compaction.is_stub(compaction.message_number(index)),
        )
        goal = CompactionGoal(
            tokens=tokens - int(goals.get(why, 0)),
            added_tokens=aside + min(aside, words),
            max_request_tokens=most,
            allows_summary=request.summary,
            is_by_person=why == "person",
        )
        return weights, plan_compaction(measured, goal)

    async def _summarize(
        self, event: ContextCompacted, request: CompactionRequest, planned: Plan, weights: list[int]
    ) -> ContextCompacted:
        """Return the event with a summary of the oldest part; without one, its note says why."""
        machine = self._driver.machine
        around = request.surroundings
        room = request.summary_tokens
        fullness = describe_fullness(request.tokens, around.window)
        self._notify(f"{fullness}: the model is asked for a summary of {planned.cut} messages")
        self._driver.log.flush()
        try:
            answer = await self._ask(planned, room)
        except ProviderError as error:
            return replace(event, note=f"{error.detail} ({error.code})")
        text = answer.text.strip()
        if not text or answer.stop == "filter":
            return replace(event, usage=answer.usage, note="the model gave no summary")
        old = machine.history[: planned.cut]
        most = int(min(MAX_SUMMARY, max(400, room * BYTES_PER_TOKEN)))
        compaction = machine.compaction
        parts = render_history(old, compaction.head_length, compaction.through + 1)
        kept = await self._keep("".join(parts).encode("utf-8", "replace"))
        whole = compaction.full_history(machine.history)
        through = compaction.message_number(planned.cut - 1)
        words = collect_messages(whole, through, room)
        dropped = sum(isinstance(message, UserMessage) for message in whole[:through]) - len(words)
        if len(text) > most:
            text = f"{text[:most]} [cut here]"
        shown = build_summary_message(
            text, around.model, through, dropped, kept, readable=self._can_read_artifacts
        )
        now = estimate_tokens(UserMessage(shown)) + sum(
            estimate_tokens(whole[number - 1]) for number in words
        )
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

    async def _ask(self, planned: Plan, room: int) -> ModelAnswered:
        """Ask the model for a summary, in an exchange of its own with the same beginning."""
        asked = [replace_media(one) for one in self._driver.machine.history[: planned.cut]]
        for index in planned.results if planned.light else ():
            message = asked[index] if index < planned.cut else None
            if isinstance(message, ToolMessage):
                size = len(message.text.encode("utf-8", "replace"))
                asked[index] = replace(
                    message, text=build_result_stub(message.text, size, "", readable=False)
                )
        driver = self._driver
        # First: whatever becomes of this, the next request opens an exchange of its own, with its
        # hooks.
        driver.reset_exchange()
        if driver.dispatcher.artifact_intake is not None:
            driver.dispatcher.artifact_intake.trust_messages(planned.cut)
        exchange = await self._open()
        check_stop()
        words = max(60, room // 2)
        answer = await exchange.ask(
            [*asked, UserMessage(SUMMARY_REQUEST.format(words=words))], tools=False
        )
        driver.log.add_notices(exchange.notices)
        return answer

    async def _elide(
        self, event: ContextCompacted, planned: Plan, weights: list[int]
    ) -> ContextCompacted:
        """Return the event with the results that the summary does not cover.

        What is left out is kept as artifacts if there is a store.
        """
        machine = self._driver.machine
        left = [
            index
            for index in planned.results
            if machine.compaction.message_number(index) > event.through
        ]
        stubs: list[str] = []
        for index in left:
            message = machine.history[index]
            assert isinstance(message, ToolMessage)
            data = message.text.encode("utf-8", "replace")
            kept = find_reference(message.text) or await self._keep(data, message.tool)
            stubs.append(
                build_result_stub(message.text, len(data), kept, readable=self._can_read_artifacts)
            )
        saved = sum(weights[index] - STUB_TOKENS for index in left)
        return replace(
            event,
            elided=tuple(map(machine.compaction.message_number, left)),
            stubs=tuple(stubs),
            after=max(1, (event.after or event.before) - saved),
        )

    async def _keep(self, data: bytes, tool: str = "") -> str:
        """Keep what is left out, and return its reference.

        Returns "" if there is no store or if it fails, which a notice says.
        """
        keeper = self._driver.dispatcher.artifact_intake
        if keeper is None:
            return ""
        store = keeper.artifacts.store
        scope = Scope.from_identity(self._driver.log.identity)
        try:
            kept = await run_blocking(
                lambda: store.put(scope, [data], mime="text/plain", tool=tool)
            )
        except (OSError, FerruleError) as error:
            self._notify(f"what is left out could not be kept as an artifact: {error}")
            return ""
        return kept.reference

    @property
    def _can_read_artifacts(self) -> bool:
        dispatcher = self._driver.dispatcher
        reader = dispatcher.catalog.get("artifact_read")
        return (
            dispatcher.artifact_intake is not None
            and reader is not None
            and not dispatcher.gate.is_hidden(reader)
        )

    def _notify(self, text: str) -> None:
        self._driver.log.notice(TOPIC, text)


def describe_fullness(tokens: int, window: int) -> str:
    """Describe how long a conversation is."""
    part = f", {tokens / window:.0%} of the model's window" if window else ""
    return f"the conversation is about {tokens:,} tokens long{part}"


def describe(event: ContextCompacted) -> str:
    """Describe a compaction to a person."""
    parts = [f"messages 1 to {event.through} are a summary now"] if event.through else []
    if event.elided:
        count = len(event.elided)
        parts.append(f"{count} old result{' is' if count == 1 else 's are'} left out")
    if not parts:
        return f"nothing was compacted: {event.note}"
    reasons = {
        "person": "as you asked",
        "overflow": "the provider found the question too large",
    }
    default = f"more than {event.share:.0%} of the model's window was used"
    why = reasons.get(event.why, default)
    note = f"; there is no summary: {event.note}" if event.note else ""
    return (
        f"compacted, from about {event.before:,} to {event.after:,} tokens ({why}): "
        f"{' and '.join(parts)}{note}. "
        "The journal keeps everything; `/uncompact` undoes it"
    )
