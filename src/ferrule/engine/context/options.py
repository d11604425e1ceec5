"""Options of the context window, and what is known of the window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.value_class import frozen, options
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec

from .compaction_plan import estimate_text_tokens

Compact = Literal["auto", "elide", "off"]
"""When old parts of a history are left out: see `ContextOptions.compact`."""
MODES: tuple[Compact, ...] = ("auto", "elide", "off")


@frozen
class WindowSurroundings:
    """The model, its window, and the tokens that system text and tools take of it.

    `window` is 0 if it is unknown.
    """

    model: str = ""
    window: int = 0
    system: int = 0
    tools: int = 0

    @property
    def used(self) -> int:
        """Tokens before the first message."""
        return self.system + self.tools


MeasureWindow = Callable[[], Awaitable[WindowSurroundings]]


@runtime_checkable
class HasRequestedWindow(Protocol):
    """A model client whose window depends on the request.

    Its server is told how much memory to use.
    """

    async def requested_window(self, options: ModelOptions) -> int | None:
        """Return the window in tokens of an exchange with these options. Raises ProviderError."""
        ...


@options
class ContextOptions:
    """How sessions keep within their model's window.

    Attributes:
        compact: `auto`, `elide` (only results, no model is asked) or `off` (a person is told once).
        share: Share of the window at which compaction begins. If the window is unknown, it begins
            when the provider refuses a request.
        keep: Number of last messages that are not touched.
    """

    compact: Compact = "auto"
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
    def parse(given: ContextOptions | Mapping[str, Any] | Compact | None) -> ContextOptions:
        """Return what `Agent(context=...)` means. Raises ConfigError."""
        if given is None:
            return ContextOptions()
        if isinstance(given, str):
            return ContextOptions(given)
        if isinstance(given, ContextOptions):
            return given
        unknown = [name for name in given if name not in ("compact", "share", "keep")]
        if unknown:
            listed = ", ".join(f"`{name}`" for name in unknown)
            raise ConfigError(
                f"context: there is no {listed}", hint="there are: compact, share, keep"
            )
        return ContextOptions(**given)


async def measure_window(
    model_client: ModelClient, options: ModelOptions, system: str, specs: Iterable[ToolSpec]
) -> WindowSurroundings:
    """Measure the window and what system text and tools take of it.

    The window is unknown if the model cannot be asked about itself.
    """
    texts = (part for spec in specs for part in (spec.name, spec.description, spec.schema))
    tools = sum(map(estimate_text_tokens, texts))
    try:
        if isinstance(model_client, HasRequestedWindow):
            window = await model_client.requested_window(options)
        else:
            known = (await model_client.capabilities()).context or 0
            asked = options.num_ctx or 0
            window = min(known or asked, asked or known)
    except ProviderError:
        window = None
    return WindowSurroundings(model_client.model, window or 0, estimate_text_tokens(system), tools)
