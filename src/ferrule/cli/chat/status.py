"""The status line: what is going on, seconds, tokens, cost, context left, mode."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    ContextCompacted,
    ModelAnswered,
    PersonAnswered,
    RunStarted,
    ToolAnswered,
    Usage,
)
from ferrule.engine.context.usage import ContextUsage
from ferrule.engine.live_events import ArgumentsDelta, Live, ReasoningDelta, TextDelta
from ferrule.models import Price

SEPARATOR = " · "


class RunStatus:
    """Follows a session's events and says in one line how things are.

    Attributes:
        usage: The tokens of this conversation in this process.
        cost: What they cost in dollars, as far as `price` was known.

    Args:
        mode: Returns the permission mode.
        clock: Seconds that only grow.
        has_typed: Returns whether the person has typed something meanwhile.
    """

    def __init__(
        self,
        mode: Callable[[], str],
        *,
        clock: Callable[[], float] = time.monotonic,
        has_typed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._mode = mode
        self._clock = clock
        self._has_typed = has_typed
        self._activity = ""
        self._began = 0.0
        self._window = 0
        self._filled = 0
        self._running: dict[str, str] = {}
        self._price: Price | None = None
        self._unpriced: list[Usage] | None = []
        self.usage = Usage()
        self.cost = Decimal(0)
        self._handlers: dict[type, Callable[[Any], None]] = {
            RunStarted: lambda _: self._do("asking the model"),
            TextDelta: lambda _: self._do("answering"),
            ReasoningDelta: lambda _: self._do("thinking"),
            ArgumentsDelta: lambda item: self._do(f"writing {item.tool}"),
            ModelAnswered: self._count_answer,
            ContextCompacted: self._count_compaction,
            CallEvaluated: self._follow_call,
            PersonAnswered: lambda _: self._do("working"),
            CallStarted: lambda _: self._do("working"),
            ToolAnswered: lambda _: self._do("asking the model"),
        }

    def __call__(self, item: Live) -> None:
        """Follow one event."""
        handler = self._handlers.get(type(item))
        if handler is not None:
            handler(item)

    def begin(self, activity: str) -> None:
        """Begin something new: its seconds are counted from now on."""
        self._began = self._clock()
        self._activity = activity

    def end(self) -> None:
        """Nothing is going on any more."""
        self._activity = ""

    def measure_context(self, usage: ContextUsage) -> None:
        """Take over what fills the context window."""
        self._window = usage.window
        self._filled = usage.tokens

    @property
    def seconds(self) -> int:
        """Seconds since something began."""
        return int(self._clock() - self._began)

    def describe_run(self) -> str:
        """Return the line for while something is going on; "" if nothing is."""
        if not self._activity:
            return ""
        typed = ["what you typed is kept for after it"] if self._has_typed() else []
        return SEPARATOR.join([self._activity, f"{self.seconds} s", *typed, *self.describe_parts()])

    def describe_parts(self) -> list[str]:
        """Return tokens, cost, context left and mode, as far as they are known."""
        parts: list[str] = []
        tokens = self.usage.input + self.usage.output
        if tokens:
            parts.append(f"{format_count(tokens)} tokens")
        if self.cost:
            parts.append(format_cost(self.cost))
        if self._window:
            left = max(0, self._window - self._filled) / self._window
            parts.append(f"{left:.0%} context left")
        parts.append(f"mode {self._mode()}")
        return parts

    @property
    def price(self) -> Price | None:
        """What an answer costs; None if that is not known.

        Answers that came before it was set are counted when it is.
        """
        return self._price

    @price.setter
    def price(self, price: Price | None) -> None:
        waiting = self._unpriced or []
        self._price = price
        self._unpriced = None
        if price is not None:
            self.cost += sum(map(price, waiting), Decimal(0))

    def _do(self, activity: str) -> None:
        self._activity = activity

    def _count_answer(self, item: ModelAnswered) -> None:
        self._count(item.usage)
        if item.usage.input:
            self._filled = item.usage.input + item.usage.output
        if item.calls:
            self._do("working")

    def _count_compaction(self, item: ContextCompacted) -> None:
        self._count(item.usage)
        self._filled = item.after

    def _count(self, usage: Usage) -> None:
        self.usage += usage
        if self._unpriced is not None:
            self._unpriced.append(usage)
        elif self._price is not None:
            self.cost += self._price(usage)

    def _follow_call(self, item: CallEvaluated) -> None:
        self._do("waiting for your answer" if item.verdict == "ask" else "working")


def format_count(number: int) -> str:
    """Return a number of tokens in few characters: `950`, `12.3k`, `1.2M`."""
    if number < 1_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


def format_cost(dollars: Decimal) -> str:
    """Return an amount of money with as many digits as say something."""
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.4f}"
