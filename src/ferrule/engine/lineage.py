"""Where a session stands among those that delegate to each other, and what all of them share: time, tokens, places.

A session that delegates, the sessions of its agents and theirs are a tree. Tokens are counted where a model answers and count for
every session above; whoever has none left asks no model again. So agents that work side by side share what is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ferrule.core.limits import Limits


class Budget:
    """Tokens of one run. What is spent here is spent in `above`, too."""

    def __init__(self, most: int | None, above: Budget | None = None) -> None:
        self._most = most
        self._above = above
        self._used = 0

    def spend(self, tokens: int) -> None:
        """Count what a model's answer cost."""
        self._used += tokens
        if self._above is not None:
            self._above.spend(tokens)

    def left(self) -> int | None:
        """Tokens that are left here and in all above; None where nothing bounds them. Below 0 if more was used."""
        found = [] if self._most is None else [self._most - self._used]
        above = None if self._above is None else self._above.left()
        return min([*found, above] if above is not None else found, default=None)


class Tree:
    """What a session and all below it share."""

    def __init__(self) -> None:
        self.working = 0
        """Agents at work now."""
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def asking(self) -> asyncio.Lock:
        """Held while a person is asked: one question at a time, whoever in the tree has it. Other loops have their own."""
        return self._asking.setdefault(asyncio.get_running_loop(), asyncio.Lock())


@dataclass(slots=True)
class Lineage:
    """One session's place. `agent` is what it is, "" for the session at the root; `parent` and `call` say who delegated to it.

    `above` is the budget it draws from. `budget` and `deadline` (in the loop's time) are those of its run.
    """

    tree: Tree
    limits: Limits
    depth: int = 0
    agent: str = ""
    parent: str = ""
    call: str = ""
    above: Budget | None = None
    budget: Budget = field(default_factory=lambda: Budget(None))
    deadline: float | None = None

    @staticmethod
    def root(limits: Limits) -> Lineage:
        """The place of a session that nobody delegated to."""
        return Lineage(Tree(), limits, budget=Budget(limits.max_tokens))

    def below(self, limits: Limits, agent: str, parent: str, call: str) -> Lineage:
        """The place of an agent that this session delegates to."""
        return Lineage(self.tree, limits, self.depth + 1, agent, parent, call, self.budget)

    def begin(self, limits: Limits) -> None:
        """A run begins: it has its own tokens and time."""
        self.limits = limits
        self.budget = Budget(limits.max_tokens, self.above)
        now = asyncio.get_running_loop().time()
        self.deadline = None if limits.max_seconds is None else now + limits.max_seconds

    def end(self) -> None:
        """The run is over: what a person calls beside runs has tokens of its own."""
        self.budget = Budget(self.limits.max_tokens, self.above)
        self.deadline = None

    def seconds_left(self) -> float | None:
        """Time that the run has left; None where nothing bounds it."""
        if self.deadline is None:
            return None
        return self.deadline - asyncio.get_running_loop().time()
