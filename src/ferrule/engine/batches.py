"""Many runs of one agent: some at a time, within a budget, each worked once.

Every input has a key, and its run is the agent's run with that key (`keyed_runs`): a batch that was
killed goes on where it was, finished inputs give the results that they had, and two processes with
one journal share the work. What a batch has spent is read from the results, so its budget holds
over processes, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar, cast

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.events import Usage
from ferrule.core.media import Content
from ferrule.core.value_class import frozen, options
from ferrule.models.prices import Price, PricePerMillion, find_price

from .agent import Agent
from .keyed_runs import has_result
from .run_inputs import UNSET
from .session import RunResult

OutputT = TypeVar("OutputT")

BatchStatus = Literal["done", "failed", "skipped"]


@options
class Budget:
    """Limits for all runs of a batch together. None means no limit.

    Attributes:
        dollars: US dollars. The model's price must be known.
        tokens: Input plus output tokens, as the provider counts them.
        price: The price of the model (default: from the known prices, `models.prices`).

    Raises:
        ConfigError: A number is not above 0.
    """

    dollars: float | None = None
    tokens: int | None = None
    price: PricePerMillion | None = None

    def __post_init__(self) -> None:
        for name, value in (("dollars", self.dollars), ("tokens", self.tokens)):
            if value is not None and not value > 0:
                raise ConfigError(f"Budget: {name} = {value!r}", hint="give a number above 0")


@frozen
class BatchItem(Generic[OutputT]):
    """The outcome of one input.

    Attributes:
        key: Its key in the batch.
        status: `done`, `failed`, or `skipped` where the budget was used up before it began.
        result: The result of its run; None unless it is done.
        error: Why it failed, as its run raised it; the next run of the batch tries again.
        seconds: How long it took here.
    """

    key: str
    status: BatchStatus
    result: RunResult[OutputT] | None = None
    error: Exception | None = None
    seconds: float = 0.0


@frozen
class BatchProgress(Generic[OutputT]):
    """How far a batch is, with the input that ended last.

    Attributes:
        item: The outcome of that input.
        ended: Number of inputs that have ended.
        total: Number of inputs.
        dollars: What all have cost so far; None if the price is not known.
    """

    item: BatchItem[OutputT]
    ended: int
    total: int
    dollars: float | None


@frozen
class BatchReport(Generic[OutputT]):
    """The outcome of a batch.

    Attributes:
        items: The outcome of each input, in their order.
        usage: What all done runs used of the model, now or earlier.
        dollars: Their cost; None if the price is not known.
        seconds: How long the batch took here.
    """

    items: tuple[BatchItem[OutputT], ...]
    usage: Usage
    dollars: float | None
    seconds: float

    def outputs(self) -> dict[str, OutputT]:
        """Return the outputs of the inputs that are done, by key."""
        return {item.key: item.result.output for item in self.items if item.result is not None}

    def count(self, status: BatchStatus) -> int:
        """Return how many inputs have this status."""
        return sum(item.status == status for item in self.items)

    @property
    def text(self) -> str:
        """The report in a few lines, for people."""
        cost = "at an unknown price" if self.dollars is None else f"for {self.dollars:.4f} dollars"
        tokens = self.usage.input + self.usage.output
        counts = ", ".join(
            f"{self.count(status)} {status}" for status in ("done", "failed", "skipped")
        )
        lines = [f"{counts} in {self.seconds:.1f} s; {tokens:,} tokens {cost}"]
        lines += [
            f"{item.key}: {_describe_error(item.error)}"
            for item in self.items
            if item.error is not None
        ]
        return "\n".join(lines)


def _describe_error(error: Exception) -> str:
    if isinstance(error, FerruleError):
        return f"{error.code}: {error.detail}"
    return f"{type(error).__name__}: {error}"


async def run_batch(
    agent: Agent[Any, OutputT],
    inputs: Mapping[str, Content] | Sequence[Content],
    *,
    name: str,
    concurrency: int = 8,
    budget: Budget | None = None,
    deps: Any = UNSET,
    on_progress: Callable[[BatchProgress[OutputT]], None] | None = None,
) -> BatchReport[OutputT]:
    """Run an agent for each input, and report. Called again, it works only what is not done.

    Cancelling it settles the runs under way; the next call continues them.

    Args:
        agent: The agent. Its journal is the memory of the batch: give it a file or an address.
        inputs: The messages by their keys; those of a list have their numbers, from 0.
        name: What tells the batch from others of the same user.
        concurrency: How many runs are under way at once.
        budget: What all runs together may use. A run that has begun is finished, so the last ones
            may exceed it.
        deps: Dependencies, the same for all runs; `Host(make_deps=...)` makes some for each.
        on_progress: Is called with a `BatchProgress` when an input has ended.

    Raises:
        ConfigError: The name is empty, the concurrency is below 1, the budget is in dollars and the
            model's price is not known, or an input was another one in an earlier call.
    """
    if not name:
        raise ConfigError("the batch has no name", hint="give it one that it keeps when resumed")
    if concurrency < 1:
        raise ConfigError(f"concurrency = {concurrency}", hint="give a number of runs, 1 or more")
    keyed = inputs if isinstance(inputs, Mapping) else _number(inputs)
    batch = _Batch(agent, name, budget or Budget(), deps, on_progress, len(keyed))
    began = time.monotonic()
    queue = iter(keyed.items())
    async with _workers() as start:
        for _ in range(min(concurrency, len(keyed))):
            start(batch.work(queue))
    items = tuple(batch.items[key] for key in keyed)
    return BatchReport(items, batch.usage, batch.dollars, time.monotonic() - began)


def _number(inputs: Sequence[Content]) -> dict[str, Content]:
    if isinstance(inputs, str):
        raise ConfigError(
            "the inputs of the batch are one text", hint="give a list of messages, or a mapping"
        )
    return {str(number): text for number, text in enumerate(cast("Iterable[Content]", inputs))}


@asynccontextmanager
async def _workers() -> AsyncGenerator[Callable[[Any], object]]:
    """Run coroutines together; what one raises ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group.create_task
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


@dataclass
class _Batch(Generic[OutputT]):
    """A batch under way."""

    agent: Agent[Any, OutputT]
    name: str
    budget: Budget
    deps: Any
    on_progress: Callable[[BatchProgress[OutputT]], None] | None
    total: int
    usage: Usage = Usage()
    items: dict[str, BatchItem[OutputT]] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self._price: Price | None = self.budget.price or find_price(self.agent.model)
        self._spent = 0.0
        if self._price is None and self.budget.dollars is not None:
            raise ConfigError(
                f"the budget is in dollars, and the price of `{self.agent.model}` is not known",
                hint="give it as `Budget(price=...)`, write it into prices.yaml, or limit `tokens`",
            )

    @property
    def dollars(self) -> float | None:
        """What the runs so far have cost; None if the price is not known."""
        return None if self._price is None else self._spent

    async def work(self, queue: Any) -> None:
        """Work inputs until none is left."""
        for key, text in queue:
            began = time.monotonic()
            item = await self._work_one(key, text)
            self._end(replace(item, seconds=time.monotonic() - began))

    async def _work_one(self, key: str, text: Content) -> BatchItem[OutputT]:
        run_key = f"{self.name}/{key}"
        if self._is_used_up() and not has_result(self.agent, run_key, text):
            return BatchItem(key, "skipped")
        try:
            result = await self.agent.run(text, key=run_key, deps=self.deps)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  boundary: whatever ends one run is told in its item
            return BatchItem(key, "failed", error=error)
        return BatchItem(key, "done", result)

    def _is_used_up(self) -> bool:
        dollars, tokens = self.budget.dollars, self.budget.tokens
        if tokens is not None and self.usage.input + self.usage.output >= tokens:
            return True
        return dollars is not None and self._spent >= dollars

    def _find_cost(self, result: RunResult[OutputT]) -> float:
        if self._price is None:
            return 0.0
        cost = result.cost if self.budget.price is None else None
        return float(self._price(result.usage)) if cost is None else cost

    def _end(self, item: BatchItem[OutputT]) -> None:
        self.items[item.key] = item
        if item.result is not None:
            self.usage += item.result.usage
            self._spent += self._find_cost(item.result)
        if self.on_progress is not None:
            self.on_progress(BatchProgress(item, len(self.items), self.total, self.dollars))
