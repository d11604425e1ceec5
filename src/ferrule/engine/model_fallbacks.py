"""Other models for a run, for when the first one fails or has used up its share of the budget.

    Agent(["anthropic:claude-opus-5", "openai:gpt-5.5"], tools)
    Agent(ModelFallbacks(models, on=("busy", "unreachable"), at_budget=0.8), tools)

Each model is asked as if it were the only one: with its own tool mode and output mode, and the
whole history. What one of them wrote that only it can read back is not sent to another.

* The next model is asked if an error is of a class in `on` and nothing of an answer was seen. Its
  client has made its own attempts before that.
* It is also asked once a share of a limit of the run (`max_tokens`, `max_cost`) is used up. What is
  used is in the journal, so a resumed run goes on with the same model.
* Each run begins with the first model again. Within a run there is no way back.
* A change of models is a notice (`fallback`) in the journal, and each answer names its model
  (`ModelAnswered.model`) if it is not the run's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message, UserMessage
from ferrule.core.value_class import frozen, options
from ferrule.models.client import Exchange, ModelClient, Sink

from .stopping import check_stop

ErrorClass = Literal["busy", "unreachable", "account", "model", "window", "broken"]
"""What kind of failure lets another model be asked."""

ERROR_CLASSES: Mapping[str, frozenset[str]] = {
    "busy": frozenset({"rate_limited", "overloaded"}),
    "unreachable": frozenset({"unreachable", "timeout", "interrupted"}),
    "account": frozenset({"quota", "unauthorized"}),
    "model": frozenset({"model_not_found", "tools_unsupported", "extra_missing"}),
    "window": frozenset({"context_overflow"}),
    "broken": frozenset({"not_understood", "malformed_call", "provider"}),
}
"""The codes of a ProviderError, by class.

A code of HTTP from 500 on is `busy`, and so is an error without a code of its own that has the
status 429, or one from 500 on.
"""

DEFAULT_CLASSES: tuple[ErrorClass, ...] = ("busy", "unreachable", "account", "model")


def classify_error(error: ProviderError) -> str:
    """Return the class of an error; "" for one that another model would not help with."""
    status = error.status or 0
    if error.code == ProviderError.code and (status == 429 or status >= 500):
        return "busy"
    for name, codes in ERROR_CLASSES.items():
        if error.code in codes:
            return name
    return "busy" if error.code.startswith("http_5") else ""


@options
class ModelFallbacks:
    """Models in the order in which they are tried.

    Attributes:
        models: Their names, or clients. The first is the agent's model.
        on: The classes of errors after which the next one is asked.
        at_budget: The share of a limit of the run, once it is used up, after which the next one is
            asked; None to ask the first as long as it answers. Only the second model is asked for
            this reason.
    """

    models: tuple[str | ModelClient, ...]
    on: tuple[ErrorClass, ...] = DEFAULT_CLASSES
    at_budget: float | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError(
                "an agent needs a model, and none was named",
                code="model",
                hint='write `["provider:model", …]`',
            )
        unknown = [name for name in self.on if name not in ERROR_CLASSES]
        if unknown:
            raise ConfigError(
                f"`{unknown[0]}` is not a class of errors",
                code="model_fallbacks",
                hint=f"use {', '.join(ERROR_CLASSES)}",
            )
        if self.at_budget is not None and not 0 < self.at_budget < 1:
            raise ConfigError(
                f"at_budget = {self.at_budget!r}",
                code="model_fallbacks",
                hint="a share between 0 and 1, such as 0.8",
            )


AgentModel = str | ModelClient | Sequence[str | ModelClient] | ModelFallbacks
"""The model of an agent, or several in the order in which they are asked."""


def split_models(
    model: AgentModel,
) -> tuple[str | ModelClient, ModelFallbacks | None]:
    """Return the first model, and all of them if there are more."""
    if isinstance(model, ModelFallbacks):
        return model.models[0], model if len(model.models) > 1 else None
    if isinstance(model, str) or not isinstance(model, Sequence):
        return model, None
    return split_models(ModelFallbacks(tuple(model)))


@frozen
class FallbackModel:
    """One of the models: its name, and what opens a conversation with it."""

    name: str
    open: Callable[[], Awaitable[Exchange]]


class ModelFallbackExchange:
    """An `Exchange` that asks the next model when one fails or the budget is nearly used up.

    Args:
        models: The models, the run's own first.
        on: The classes of errors after which the next one is asked.
        is_budget_reached: Whether so much of the run's budget is used that the second is asked.
    """

    def __init__(
        self,
        models: Sequence[FallbackModel],
        on: Sequence[str],
        is_budget_reached: Callable[[], bool],
    ) -> None:
        self.notices: list[tuple[str, str]] = []
        self._models = models
        self._on = frozenset(on)
        self._is_budget_reached = is_budget_reached
        self._exchanges: dict[int, Exchange] = {}
        self._active = 0

    @property
    def inner(self) -> Exchange | None:
        """The conversation with the model that is asked now."""
        return self._exchanges.get(self._active)

    @property
    def model(self) -> str:
        """The name of the model that is asked now."""
        return self._models[self._active].name

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """Ask the model whose turn it is; see `Exchange.ask`."""
        if history and isinstance(history[-1], UserMessage):
            self._active = 0
        if self._active == 0 and self._is_budget_reached():
            self._go_on(f"{self.model}: the run's budget is nearly used up", sink)
        while True:
            seen = None if sink is None else _WatchingSink(sink)
            try:
                exchange = await self._open_active()
                try:
                    check_stop()
                    answer = await exchange.ask(history, tools=tools, schema=schema, sink=seen)
                finally:
                    self.notices += exchange.notices
                    exchange.notices.clear()
            except ProviderError as error:
                if not self._may_go_on(error) or (seen is not None and seen.has_begun):
                    raise
                self._go_on(self._describe(error), sink)
            else:
                return replace(answer, model=self.model) if self._active else answer

    async def _open_active(self) -> Exchange:
        exchange = self._exchanges.get(self._active)
        if exchange is None:
            exchange = await self._models[self._active].open()
            self._exchanges[self._active] = exchange
        return exchange

    def _may_go_on(self, error: ProviderError) -> bool:
        return self._active + 1 < len(self._models) and classify_error(error) in self._on

    def _describe(self, error: ProviderError) -> str:
        name = self.model
        detail = error.detail if error.detail.startswith(name) else f"{name}: {error.detail}"
        return f"{detail} ({classify_error(error)})"

    def _go_on(self, reason: str, sink: Sink | None) -> None:
        """Turn to the next model, and say why."""
        self._active += 1
        text = f"{reason}; continuing with {self.model}"
        if sink is not None:
            sink.notice("fallback", text)
        else:
            self.notices.append(("fallback", text))


class _WatchingSink:
    """Passes an answer on, and knows whether anything of it was seen."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.has_begun = False

    def add_text(self, piece: str) -> None:
        self.has_begun = True
        self._sink.add_text(piece)

    def add_reasoning(self, piece: str) -> None:
        self.has_begun = True
        self._sink.add_reasoning(piece)

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        self.has_begun = True
        self._sink.add_arguments(call, tool, piece)

    def notice(self, topic: str, text: str) -> None:
        self._sink.notice(topic, text)
