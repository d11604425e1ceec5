"""What a run shows while it runs, besides the journal's events: pieces that are never stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from ferrule.core.events import Event
from ferrule.core.value_class import frozen

from .type_variables import OutputT


@frozen
class TextDelta:
    """A piece of the model's answer."""

    text: str


@frozen
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@frozen
class ArgumentsDelta:
    """A piece of the arguments of a call that the model is still writing.

    Nothing of it has been checked, and the call may never be made.

    Attributes:
        call: Tells the calls of one answer apart.
        tool: The name of the tool, as the model was given it, as far as it has arrived.
        text: The piece of JSON text.
    """

    call: int
    tool: str
    text: str


@frozen
class Progress:
    """A line of progress from a running tool.

    With `is_tail` it is the end of what a running command has printed, in place of the one before.
    """

    call_id: str
    text: str
    is_tail: bool = False


@frozen
class PartialOutput(Generic[OutputT]):
    """The value of an `output_type` with what has arrived (`engine.output.partial_values`).

    Attributes:
        output: The value. Before `final` its required fields may be None, and nothing of it was
            checked.
        final: Whether it is the output of the run.
    """

    output: OutputT
    final: bool = False


Live = Event | TextDelta | ReasoningDelta | ArgumentsDelta | Progress
"""Everything that observers see. `Session.stream` also yields `PartialOutput`."""

Observer = Callable[[Live], None]
"""Called for each item as it happens; must be quick and must not raise."""
