"""How sessions keep within their model's window: what a person may say of it, and what is known of
the window.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.frozen import frozen
from ferrule.models.client import ModelOptions, ToolSpec, Wire

from .compaction_plan import tokens_of

MODES = ("auto", "elide", "off")
"""What `compact` may be."""


class Around(NamedTuple):
    """The model that is asked, its window in tokens (0: nobody knows), and what system text and
    tools take of it.
    """

    model: str = ""
    window: int = 0
    system: int = 0
    tools: int = 0

    @property
    def taken(self) -> int:
        """Tokens that stand before the first message."""
        return self.system + self.tools


LookAround = Callable[[], Awaitable[Around]]


@runtime_checkable
class Windowed(Protocol):
    """A wire whose window depends on what is asked for: a server that is told how much memory to
    use.
    """

    async def asked_window(self, options: ModelOptions) -> int | None:
        """The window in tokens that an exchange with these options has. Raises ProviderError."""
        ...


@frozen
class ContextOptions:
    """How sessions keep within their model's window.

    `compact` is `auto`, `elide` (only results, no model is asked) or `off` (a person is told once);
    `share` of the window is where it begins; the last `keep` messages are not touched. Where nobody
    knows the window it begins when the provider refuses a question.
    """

    compact: str = "auto"
    share: float = 0.8
    keep: int = 8

    def __post_init__(self) -> None:
        if self.compact not in MODES:
            raise ConfigError(
                f"context.compact = {self.compact!r}", hint=f"one of {', '.join(MODES)}"
            )
        if not 0.2 <= self.share <= 0.95:
            raise ConfigError(f"context.share = {self.share!r}: must lie between 0.2 and 0.95")
        if self.keep < 1:
            raise ConfigError(f"context.keep = {self.keep!r}: must be at least 1")

    @staticmethod
    def of(given: ContextOptions | Mapping[str, Any] | str | None) -> ContextOptions:
        """What `Agent(context=...)` means. Raises ConfigError."""
        if given is None or isinstance(given, str):
            return ContextOptions() if given is None else ContextOptions(given)
        if isinstance(given, ContextOptions):
            return given
        if unknown := ", ".join(
            f"`{name}`" for name in given if name not in ("compact", "share", "keep")
        ):
            raise ConfigError(
                f"context: there is no {unknown}", hint="there are: compact, share, keep"
            )
        return ContextOptions(**given)


async def look_around(
    wire: Wire, options: ModelOptions, system: str, specs: Iterable[ToolSpec]
) -> Around:
    """What is around a conversation. A model that cannot be asked about itself has a window that
    nobody knows.
    """
    texts = (part for spec in specs for part in (spec.name, spec.description, spec.schema))
    tools = sum(map(tokens_of, texts))
    try:
        if isinstance(wire, Windowed):
            window = await wire.asked_window(options)
        else:
            known, asked = (await wire.capabilities()).context or 0, options.num_ctx or 0
            window = min(known or asked, asked or known)
    except ProviderError:
        window = None
    return Around(wire.model, window or 0, tokens_of(system), tools)
