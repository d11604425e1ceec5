"""Limits of a run. Defaults apply where settings say nothing; hard limits can only be lowered.

Those of a user and of a tenant hold for all their runs together, in whatever process: they are
counted in the journal (`engine.owner_budgets`).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Literal

from .errors import ConfigError
from .value_class import options
from .vocabulary import OwnerLimitName

OUTPUT_CAP = 65_536
"""The most bytes of tool text per result. Settings can lower it, never raise it."""

DEFAULT_TURNS = 200
"""Turns per message where nothing is set: real tasks of strong models take 20 to 200."""

GO_ON = "Go on where you stopped: the limit was raised."
"""The message that continues a run after a limit."""


OnLimit = Literal["error", "answer"]
"""What happens at a limit: the error, or one more answer without tools before it."""


@options
class Limits:
    """The limits of one run. Raises ConfigError for values that make no sense.

    Attributes:
        max_turns: Turns (model answers) per message; None for 200, and less with a provider of
            very small models.
        max_calls_per_turn: Calls in one turn.
        max_output_bytes: Bytes of tool text per result, at most `OUTPUT_CAP`.
        max_seconds: Wall time; None for no limit.
        max_tokens: Input plus output tokens, as the provider counts them; None for no limit.
        on_limit: `"error"`, or `"answer"` to ask once more without tools before the error.
        max_cost: US dollars; None for no limit.
        max_calls: Calls in all turns of the run; None for no limit.
        warn_at: The share of tokens, cost or calls after which a person is warned.
        user_tokens: Tokens that all runs of the user may use in `period_days`, sub-agents included;
            None for no limit.
        user_cost: The same in US dollars.
        tenant_tokens: The same for all users of the tenant together, in tokens.
        tenant_cost: The same for all users of the tenant together, in US dollars.
        period_days: The days that those four look back on, today (UTC) included.
    """

    max_turns: int | None = None
    max_calls_per_turn: int = 15
    max_output_bytes: int = OUTPUT_CAP
    max_seconds: float | None = None
    max_tokens: int | None = None
    on_limit: OnLimit = "error"
    max_cost: float | None = None
    max_calls: int | None = None
    warn_at: float = 0.8
    user_tokens: int | None = None
    user_cost: float | None = None
    tenant_tokens: int | None = None
    tenant_cost: float | None = None
    period_days: int = 30

    @property
    def of_owners(self) -> dict[OwnerLimitName, float]:
        """The limits of all runs of the user or the tenant that are set."""
        named: dict[OwnerLimitName, float | None] = {
            "user_tokens": self.user_tokens,
            "user_cost": self.user_cost,
            "tenant_tokens": self.tenant_tokens,
            "tenant_cost": self.tenant_cost,
        }
        return {name: most for name, most in named.items() if most is not None}

    @property
    def counts_cost(self) -> bool:
        """Whether a limit is in US dollars."""
        return not (self.max_cost is self.user_cost is self.tenant_cost is None)

    def with_owner_limits(self, other: Limits) -> Limits:
        """Return these limits with those of another object for a user and a tenant."""
        return replace(
            self,
            user_tokens=other.user_tokens,
            user_cost=other.user_cost,
            tenant_tokens=other.tenant_tokens,
            tenant_cost=other.tenant_cost,
            period_days=other.period_days,
        )

    @property
    def turns(self) -> int:
        """The turns that a message may take."""
        return DEFAULT_TURNS if self.max_turns is None else self.max_turns

    def fill_turns(self, turns: int) -> Limits:
        """Return the limits of a run: `max_turns` is filled in, unless it is set."""
        return self if self.max_turns is not None else replace(self, max_turns=turns)

    def __post_init__(self) -> None:
        if self.turns < 1 or self.max_calls_per_turn < 1:
            raise ConfigError("max_turns and max_calls_per_turn must be at least 1")
        if not 256 <= self.max_output_bytes <= OUTPUT_CAP:
            raise ConfigError(
                f"max_output_bytes = {self.max_output_bytes}: must lie between 256 and {OUTPUT_CAP}"
            )
        if self.max_cost is not None and not 0 < self.max_cost < inf:
            raise ConfigError(
                f"max_cost = {self.max_cost!r}: must be an amount of US dollars above 0"
            )
        if self.max_calls is not None and self.max_calls < 1:
            raise ConfigError("max_calls must be at least 1")
        for name, most in self.of_owners.items():
            if not 0 <= most < inf:
                raise ConfigError(f"{name} = {most!r}: must be an amount of 0 or more")
        if self.period_days < 1:
            raise ConfigError("period_days must be at least 1")
        if not 0 < self.warn_at <= 1:
            raise ConfigError(f"warn_at = {self.warn_at!r}: must be a share above 0, and at most 1")
        if self.on_limit not in ("error", "answer"):
            raise ConfigError(f"on_limit = {self.on_limit!r}: use `error` or `answer`")
