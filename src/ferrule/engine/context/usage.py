"""What fills a model's context window: system text, tools, and the history by kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.core.value_class import frozen

from .compaction_plan import estimate_tokens
from .options import WindowSurroundings


@frozen
class ContextPart:
    """One kind of content: its number of messages (0 if it is not messages) and rough tokens."""

    name: str
    count: int
    tokens: int


@frozen
class ContextUsage:
    """What the next request takes of the window, in tokens.

    Attributes:
        model: The model.
        window: The model's window; 0 if unknown.
        tokens: What the request takes. It is based on the provider's count of the last answer if
            `counted`, else it is an estimate.
        counted: See `tokens`.
        parts: What takes the tokens: estimates that add up to `tokens`.
        summarized: Messages 1 to this number are sent as a summary.
        elided: Number of results that are sent as stubs.
    """

    model: str
    window: int
    tokens: int
    counted: bool
    parts: tuple[ContextPart, ...]
    summarized: int
    elided: int

    @property
    def remaining(self) -> int:
        """Free tokens of the window; 0 if the window is unknown."""
        return max(0, self.window - self.tokens)


def measure_usage(
    machine: Machine, around: WindowSurroundings, tokens: int, counted: bool
) -> ContextUsage:
    """Measure what is sent, by kind. `tokens` is the total."""
    compaction = machine.compaction
    parts = [
        ContextPart("system text", 0, around.system),
        ContextPart("tools", 0, around.tools),
        *_measure_history(machine.history, compaction.head_length if compaction.through else 0),
    ]
    return ContextUsage(
        model=around.model,
        window=around.window,
        tokens=tokens,
        counted=counted,
        parts=_scale(parts, tokens),
        summarized=compaction.through,
        elided=compaction.stub_count,
    )


def _measure_history(history: Sequence[Message], head: int) -> Iterator[ContextPart]:
    kinds: dict[str, list[int]] = {
        "summary, and words kept beside it": [],
        "your messages": [],
        "answers and calls": [],
        "results": [],
    }
    for index, message in enumerate(history):
        kinds[_kind(index, message, head)].append(estimate_tokens(message))
    for name, weights in kinds.items():
        if weights:
            yield ContextPart(name, len(weights), sum(weights))


def _kind(index: int, message: Message, head: int) -> str:
    if index < head:
        return "summary, and words kept beside it"
    if isinstance(message, ToolMessage):
        return "results"
    if isinstance(message, AssistantMessage):
        return "answers and calls"
    return "your messages"


def _scale(parts: Sequence[ContextPart], tokens: int) -> tuple[ContextPart, ...]:
    """Scale the parts so that they add up to `tokens`.

    Each ends where its share of the running sum ends, so rounding errors do not add up.
    """
    whole = sum(part.tokens for part in parts)
    if not whole:
        return tuple(parts)
    scaled: list[ContextPart] = []
    running = 0
    before = 0
    for part in parts:
        running += part.tokens
        upto = running * tokens // whole
        scaled.append(ContextPart(part.name, part.count, upto - before))
        before = upto
    return tuple(scaled)
