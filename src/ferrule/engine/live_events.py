"""What a run shows while it runs, besides the journal's events: pieces that are never stored."""

from __future__ import annotations

from collections.abc import Callable

from ferrule.core.events import Event
from ferrule.core.value_class import frozen


@frozen
class TextDelta:
    """A piece of the model's answer."""

    text: str


@frozen
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@frozen
class Progress:
    """A line of progress from a running tool."""

    call_id: str
    text: str


Live = Event | TextDelta | ReasoningDelta | Progress
"""Everything that `Session.stream` yields."""

Observer = Callable[[Live], None]
"""Called for each item as it happens; must be quick and must not raise."""
