"""What fills a model's context window: system text, tools, and the history by kind; what was
compacted, what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ferrule.core.frozen import frozen
from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, Message, ToolMessage

from .compaction_plan import weight
from .options import Around


@frozen
class ContextPart:
    """One kind of content: how many messages it has (0: it is no message) and about how many
    tokens.
    """

    name: str
    count: int
    tokens: int


@frozen
class ContextUsage:
    """What the next question takes of the window, in tokens. `window` is 0 where nobody knows it.

    `tokens` rests on the provider's own count of the last answer where `counted` is true, else it
    is an estimate; the parts are estimates that add up to it. Messages 1 to `summarized` are sent
    as a summary, `elided` results as stubs.
    """

    model: str
    window: int
    tokens: int
    counted: bool
    parts: tuple[ContextPart, ...]
    summarized: int
    elided: int

    @property
    def left(self) -> int:
        """Tokens of the window that are free; 0 where nobody knows the window."""
        return max(0, self.window - self.tokens)


def measure(machine: Machine, around: Around, tokens: int, counted: bool) -> ContextUsage:
    """Sort what is sent of a session by kind. `tokens` is what all of it takes."""
    compaction = machine.compaction
    parts = [
        ContextPart("system text", 0, around.system),
        ContextPart("tools", 0, around.tools),
        *_history(machine.history, compaction.head if compaction.through else 0),
    ]
    return ContextUsage(
        model=around.model,
        window=around.window,
        tokens=tokens,
        counted=counted,
        parts=_scaled(parts, tokens),
        summarized=compaction.through,
        elided=compaction.elided,
    )


def _history(history: Sequence[Message], head: int) -> Iterator[ContextPart]:
    kinds: dict[str, list[int]] = {
        "summary, and words kept beside it": [],
        "your messages": [],
        "answers and calls": [],
        "results": [],
    }
    for index, message in enumerate(history):
        kinds[_kind(index, message, head)].append(weight(message))
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


def _scaled(parts: Sequence[ContextPart], tokens: int) -> tuple[ContextPart, ...]:
    """The parts so that they add up to `tokens`: each ends where its share of the running sum
    ends.
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
