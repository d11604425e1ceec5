"""Budgets of a run: tokens, money and calls, counted where an answer comes in; and time, across
processes.

Rules of this file, each a promise with a test:

* What is spent stands in the journal: tokens and their price with each answer, what agents used
  with the end of their work. So a run that is gone on with in another process goes on with what was
  spent, and its time does not begin anew.
* An answer that goes over a bound is kept, none of its calls is run, and the run stops with a
  `LimitReached` of its own code (`limit_max_tokens`, `limit_max_cost`, `limit_max_calls`). An
  answer that ends the run counts as an answer.
* Where money is bounded, a model without a price is refused before it is asked: what nobody can
  count is not let pass.
* When a share of a bound is passed (`Limits.warn_at`), a person is told once in a run: the notice
  `budget`.

What cannot be known: what an answer will cost before it is there. So the last answer can go over
the bound by its own price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from ferrule.core.commands import Command
from ferrule.core.errors import ConfigError
from ferrule.core.events import (
    ContextCompacted,
    Event,
    LimitHit,
    ModelAnswered,
    Record,
    Recovered,
    RunStarted,
    Usage,
)
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine

if TYPE_CHECKING:
    from ferrule.models.prices import Price

NANO = 1_000_000_000
"""Parts of a dollar in which `Usage.cost` counts."""
_UNITS = {"max_tokens": "tokens", "max_cost": "dollars", "max_calls": "calls"}


class Budgets:
    """Those of one run that asks `model`. Raises ConfigError if its money is bounded and nobody
    knows what the model costs.
    """

    def __init__(
        self, machine: Machine, limits: Limits, model: str, notice: Callable[[str, str], None]
    ) -> None:
        self._machine = machine
        self._notice = notice
        self._price = None if limits.max_cost is None else price_for(model)
        self._told: set[str] | None = None

    def answered(
        self, answer: ModelAnswered | ContextCompacted, feed: Callable[[Event], list[Command]]
    ) -> list[Command]:
        """What to do after an answer (or a summary): what the machine says, or the end of a run
        that went over a bound.
        """
        machine = self._machine
        if self._told is None:
            # Of a run that is gone on with, what was passed by then was said by then.
            self._told = {
                name for name, used, most in self._spent() if used >= most * machine.limits.warn_at
            }
        commands = feed(self._priced(answer))
        for name, used, most in self._spent():
            if used > most and machine.active:
                return feed(LimitHit(name, most))
            if used >= most * machine.limits.warn_at and name not in self._told:
                self._told.add(name)
                self._notice(
                    "budget", f"{used:,.6g} of {most:,.6g} {_UNITS[name]} are used ({name})"
                )
        return commands

    def _priced(self, answer: ModelAnswered | ContextCompacted) -> ModelAnswered | ContextCompacted:
        if self._price is None:
            return answer
        # Rounded up: a budget never counts too little.
        cost = ceil(self._price(answer.usage) * NANO)
        return replace(answer, usage=replace(answer.usage, cost=cost))

    def _spent(self) -> Iterator[tuple[str, float, float]]:
        """Name, what is used and the most of each bound that there is."""
        limits, used = self._machine.limits, self._machine.usage
        if limits.max_tokens is not None:
            yield "max_tokens", used.input + used.output, limits.max_tokens
        if limits.max_cost is not None:
            yield "max_cost", dollars(used), limits.max_cost
        if limits.max_calls is not None:
            yield "max_calls", calls_of(self._machine), limits.max_calls


def dollars(usage: Usage) -> float:
    """Its cost in US dollars."""
    return usage.cost / NANO


def calls_of(machine: Machine) -> int:
    """Calls that the model made in this run so far, whatever came of them."""
    return len(machine.results()) + sum(not slot.direct for slot in machine.open_calls())


def price_for(model: str) -> Price:
    """What answers of a model cost. Raises ConfigError if nobody knows."""
    from ferrule.models.prices import FILE, price_of

    price = price_of(model)
    if price is None:
        raise ConfigError(
            f"max_cost is set, and nobody knows what `{model}` costs",
            code="price_unknown",
            hint=(
                f"write its prices into `{FILE}` of your settings folder, or install "
                "`ferrule[prices]`, which knows many models"
            ),
        )
    return price


def seconds_used(records: Iterable[Record]) -> float:
    """Time that the last run of a journal took so far, without the times in which no process drove
    it.
    """
    total = before = 0
    for record in records:
        if isinstance(record.event, RunStarted):
            total = 0
        elif not isinstance(record.event, Recovered):
            total += record.time - before
        before = record.time
    return max(0, total) / 1000
