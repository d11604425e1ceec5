"""Typed answers: runs that end with a value of the agent's `output_type`.

Modules: `output_type` (what an output type is, its schema and its check), `json_answer` (the one
JSON value in an answer), `output_check` (the driver's part).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .output_check import AgentOutput

__all__ = ["AgentOutput"]

__getattr__, __dir__ = lazy_names(__name__, {".output_check": ("AgentOutput",)})
