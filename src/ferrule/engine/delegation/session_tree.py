"""A session's place in the tree of delegating sessions, and what they share.

A session that delegates, the sessions of its sub-agents and theirs are a tree. Tokens, their price
and calls are counted where a model answers and count for every session above; a session with
nothing left asks its model no more. So sub-agents that work side by side share what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ferrule.core.events import Usage
from ferrule.core.limits import Limits
from ferrule.core.vocabulary import LimitName
from ferrule.engine.budgets import NANODOLLARS


class Budget:
    """Tokens of one run, or whatever else is counted.

    What is spent here is also spent in `above`.
    """

    def __init__(self, most: int | None, above: Budget | None = None) -> None:
        self._most = most
        self._above = above
        self._used = 0

    def spend(self, tokens: int) -> None:
        """Count what a model's answer took."""
        self._used += tokens
        if self._above is not None:
            self._above.spend(tokens)

    def compute_remaining(self) -> int | None:
        """Return what is left here and in all above; None if nothing limits it.

        It is below 0 if more was used.
        """
        found = [] if self._most is None else [self._most - self._used]
        above = None if self._above is None else self._above.compute_remaining()
        return min([*found, above] if above is not None else found, default=None)


class SharedBudget:
    """What a run and its sub-agents may spend, by the names of the limits.

    Tokens, money (in billionths of a dollar) and calls.
    """

    def __init__(self, limits: Limits, above: SharedBudget | None = None) -> None:
        cost = None if limits.max_cost is None else round(limits.max_cost * NANODOLLARS)
        most: dict[LimitName, int | None] = {
            "max_tokens": limits.max_tokens,
            "max_cost": cost,
            "max_calls": limits.max_calls,
        }
        up: Mapping[LimitName, Budget] = {} if above is None else above.budgets
        self.budgets: dict[LimitName, Budget] = {
            name: Budget(bound, up.get(name)) for name, bound in most.items()
        }

    def spend(self, usage: Usage, calls: int) -> None:
        """Count a model's answer."""
        self.budgets["max_tokens"].spend(usage.input + usage.output)
        self.budgets["max_cost"].spend(usage.cost or 0)
        self.budgets["max_calls"].spend(calls)

    def compute_remaining(self, name: LimitName) -> int | None:
        """Return what is left of a limit here and in all above; None if nothing limits it."""
        return self.budgets[name].compute_remaining()

    def find_exhausted(self) -> LimitName | None:
        """Return a limit that forbids another request to a model; None if there is none.

        After the last call the model may still answer.
        """
        for name in self.budgets:
            left = self.compute_remaining(name)
            if left is not None and (left < 0 or (left == 0 and name != "max_calls")):
                return name
        return None


class Tree:
    """What a session and all sessions below it share."""

    def __init__(self) -> None:
        self.working = 0
        """Number of sub-agents that are working now."""
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    @contextmanager
    def count_working(self) -> Generator[None]:
        """Count a sub-agent while it works."""
        self.working += 1
        try:
            yield
        finally:
            self.working -= 1

    def question_lock(self) -> asyncio.Lock:
        """Return the lock that is held while a person is asked.

        So there is one approval request at a time in the tree. Each event loop has its own lock.
        """
        return self._asking.setdefault(asyncio.get_running_loop(), asyncio.Lock())


@dataclass(slots=True)
class Lineage:
    """The place of one session.

    `agent` is its sub-agent's name, "" for the session at the root; `parent` and `call` say who
    delegated to it. It draws on `above`; `shared` and `deadline` (in the loop's time) are its
    run's.
    """

    tree: Tree
    limits: Limits
    depth: int = 0
    agent: str = ""
    parent: str = ""
    call: str = ""
    above: SharedBudget | None = None
    shared: SharedBudget = field(default_factory=lambda: SharedBudget(Limits()))
    deadline: float | None = None

    @staticmethod
    def root(limits: Limits) -> Lineage:
        """Return the place of a session that nobody delegated to."""
        return Lineage(Tree(), limits, shared=SharedBudget(limits))

    def for_sub_agent(self, limits: Limits, agent: str, parent: str, call: str) -> Lineage:
        """Return the place of a sub-agent that this session delegates to."""
        return Lineage(self.tree, limits, self.depth + 1, agent, parent, call, self.shared)

    def begin_run(self, limits: Limits, elapsed: float = 0.0) -> None:
        """Start a run with a budget of its own, of whose time `elapsed` seconds are used."""
        self.limits = limits
        self.shared = SharedBudget(limits, self.above)
        now = asyncio.get_running_loop().time() - elapsed
        self.deadline = None if limits.max_seconds is None else now + limits.max_seconds

    def end_run(self) -> None:
        """End the run: calls that a person makes outside of runs have a budget of their own."""
        self.shared = SharedBudget(self.limits, self.above)
        self.deadline = None

    def remaining_seconds(self) -> float | None:
        """Return the seconds that the run has left; None if nothing limits it."""
        if self.deadline is None:
            return None
        return self.deadline - asyncio.get_running_loop().time()
