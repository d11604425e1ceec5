"""Typed answers: runs that end with a value of the agent's `output_type`.

Modules: `output_type` (what an output type is, its schema and its check), `json_answer` (the one
JSON value in an answer), `output_check` (the driver's part), `own_code` (which types run code of
their own), `partial_values` and `partial_conversion` (values while they arrive).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .output_check import AgentOutput, OutputCheck
    from .partial_values import OutputStream

__all__ = ["AgentOutput", "OutputCheck", "OutputStream"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {".output_check": ("AgentOutput", "OutputCheck"), ".partial_values": ("OutputStream",)},
)
