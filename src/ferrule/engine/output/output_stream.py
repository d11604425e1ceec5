"""The partial values of a run, made of its events as they happen."""

from __future__ import annotations

from typing import Any

from ferrule.core.events import ModelAnswered, OutputChecked
from ferrule.engine.live_events import Live, PartialOutput, TextDelta

from .output_check import OutputCheck
from .partial_conversion import NOTHING
from .partial_values import PartialValues


class OutputStream:
    """Follows one run."""

    def __init__(self, check: OutputCheck) -> None:
        self._check = check
        has_partial_values = check.output.hint is not None
        self._partial = PartialValues(check.output) if has_partial_values else None

    def take(self, item: Live) -> PartialOutput[Any] | None:
        """Take what happened. Return the value so far if it shows more of it."""
        if isinstance(item, OutputChecked):
            return None if item.problems else PartialOutput(self._check.value, final=True)
        if self._partial is None:
            return None
        if isinstance(item, TextDelta):
            value = self._partial.add(item.text)
            return None if value is NOTHING else PartialOutput(value)
        if isinstance(item, ModelAnswered):
            self._partial.reset()
        return None
