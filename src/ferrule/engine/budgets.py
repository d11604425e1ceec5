"""Budgets of a run: tokens, money and calls, counted with each answer; and time across processes.

Rules of this file, each a promise with a test:

* What is spent is in the journal: tokens with each answer, and their price where money is limited;
  what sub-agents used with the end of their work. So a run that is resumed in another process goes
  on with what was spent, and its time does not start anew.
* An answer that exceeds a limit is kept, none of its calls is run, and the run stops with a
  `LimitReached` of its own code (`limit_max_tokens`, `limit_max_cost`, `limit_max_calls`). An
  answer that ends the run counts as an answer.
* Where money is limited, a model without a known price is refused before it is asked: a cost that
  cannot be counted is not allowed. Elsewhere a cost is counted when somebody asks (`count_cost`).
* When a share of a limit is passed (`Limits.warn_at`), a person is told once in a run: the notice
  `budget`.

The cost of an answer cannot be known before it is there. So the last answer can exceed the limit by
its own price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from math import ceil

from ferrule import models
from ferrule.core.commands import Command
from ferrule.core.errors import ConfigError
from ferrule.core.events import (
    ContextCompacted,
    Event,
    JournalRecord,
    LimitHit,
    ModelAnswered,
    Recovered,
    RunStarted,
    Spent,
    Usage,
)
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.vocabulary import LimitName

NANODOLLARS = 1_000_000_000
"""Parts of a dollar in which `Usage.cost` counts."""
_UNITS = {"max_tokens": "tokens", "max_cost": "dollars", "max_calls": "calls"}


class Budgets:
    """The budgets of one run that asks `model`.

    Args:
        machine: The state machine of the session.
        limits: The run's limits.
        model: The model that is asked.
        notice: Writes a notice (topic, text) for a person.
        others: Models that may be asked in its place.

    Raises:
        ConfigError: The cost is limited and the model's price is not known.
    """

    def __init__(
        self,
        machine: Machine,
        limits: Limits,
        model: str,
        notice: Callable[[str, str], None],
        others: Iterable[str] = (),
    ) -> None:
        self._machine = machine
        self._notice = notice
        self._model = model
        self._prices = (
            None
            if not limits.counts_cost
            else {name: require_price(name) for name in (model, *others)}
        )
        self._told: set[str] | None = None

    def count_answer(
        self, answer: ModelAnswered | ContextCompacted, feed: Callable[[Event], list[Command]]
    ) -> list[Command]:
        """Count an answer (or a summary) and return what to do next.

        Returns:
            The machine's commands, or those that end a run that exceeded a limit.
        """
        machine = self._machine
        if self._told is None:
            # In a resumed run, what was passed earlier was reported earlier.
            self._told = {
                name
                for name, used, most in self._measure()
                if used >= most * machine.limits.warn_at
            }
        commands = feed(self._add_cost(answer))
        for name, used, most in self._measure():
            if used > most and machine.is_active:
                return feed(LimitHit(name, most))
            if used >= most * machine.limits.warn_at and name not in self._told:
                self._told.add(name)
                self._notice(
                    "budget", f"{used:,.6g} of {most:,.6g} {_UNITS[name]} are used ({name})"
                )
        return commands

    def _add_cost(
        self, answer: ModelAnswered | ContextCompacted
    ) -> ModelAnswered | ContextCompacted:
        if self._prices is None:
            return answer
        model = answer.model or self._model
        if model not in self._prices:
            self._prices[model] = self._find_other_price(model) or self._prices[self._model]
        cost = _price_tokens(self._prices[model], answer.usage)
        return replace(answer, usage=replace(answer.usage, cost=cost))

    def _find_other_price(self, model: str) -> models.Price | None:
        """Return the price of a model that only wrote a summary; None if it is not known.

        It then counts as the run's model does: where money is limited, nothing is free.
        """
        try:
            return models.find_price(model)
        except ConfigError as error:
            self._notice("budget", f"a summary is counted by the price of `{self._model}`: {error}")
            return None

    def _measure(self) -> Iterator[tuple[LimitName, float, float]]:
        """Yield name, amount used and maximum of each limit that is set."""
        yield from _measure_spending(self._machine)
        limits = self._machine.limits
        if limits.max_calls is not None:
            yield "max_calls", count_calls(self._machine), limits.max_calls


def is_share_used(machine: Machine, share: float | None) -> bool:
    """Return whether so large a share of the run's tokens or of its money is used up."""
    if share is None:
        return False
    return any(used >= most * share for _, used, most in _measure_spending(machine))


def _measure_spending(machine: Machine) -> Iterator[tuple[LimitName, float, float]]:
    limits = machine.limits
    used = machine.usage
    if limits.max_tokens is not None:
        yield "max_tokens", used.input + used.output, limits.max_tokens
    if limits.max_cost is not None:
        yield "max_cost", in_dollars(used.cost) or 0.0, limits.max_cost


def in_dollars(cost: int | None) -> float | None:
    """Return a cost in billionths of a US dollar in dollars; None stays None."""
    return None if cost is None else cost / NANODOLLARS


def count_cost(spent: Iterable[Spent]) -> int | None:
    """Return what tokens cost, in billionths of a US dollar.

    It is None if the price of a part is unknown. What was counted before stays as it was; the rest
    is counted by the prices of now.

    Raises:
        ConfigError: The price file is broken.
    """
    find_once = cache(models.find_price)
    total = None
    for model, usage in spent:
        cost = usage.cost
        if cost is None:
            price = find_once(model) if model else None
            if price is None and usage.is_empty:
                continue
            if price is None:
                return None
            cost = _price_tokens(price, usage)
        total = cost + (total or 0)
    return total


def _price_tokens(price: models.Price, usage: Usage) -> int:
    # Rounded up: a budget never counts too little.
    return ceil(price(usage) * NANODOLLARS)


def count_usage(machine: Machine) -> Usage:
    """Return what a run used, with its cost if that is known."""
    try:
        return replace(machine.usage, cost=count_cost(machine.spent))
    except ConfigError:
        # The price file is broken, which whoever asks for the cost of the whole run is told.
        return machine.usage


def count_calls(machine: Machine) -> int:
    """Return how many calls the model made in this run so far, whatever their results."""
    return len(machine.results()) + sum(not slot.direct for slot in machine.open_calls())


def require_price(model: str) -> models.Price:
    """Return the price of a model's answers. Raises ConfigError if it is not known."""
    price = models.find_price(model)
    if price is None:
        raise ConfigError(
            f"the cost is limited, and the price of `{model}` is not known",
            code="price_unknown",
            hint=(
                f"write its prices into `{models.PRICES_FILE}` of your settings folder, or install "
                "`ferrule[prices]`, which knows many models"
            ),
        )
    return price


def count_seconds(records: Iterable[JournalRecord]) -> float:
    """Return the seconds that the last run of a journal took so far.

    Times in which no process drove it do not count.
    """
    total = before = 0
    for record in records:
        if isinstance(record.event, RunStarted):
            total = 0
        elif not isinstance(record.event, Recovered):
            total += record.time - before
        before = record.time
    return max(0, total) / 1000
