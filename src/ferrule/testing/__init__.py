"""Test doubles for servers and clocks, and conformance suites for Ferrule's protocols.

Modules: `artifact_conformance`, `byte_stream`, `fakes`, `http_double`, `journal_conformance`,
`media_samples`, `ollama_double`, `provider_double`, `pytest_plugin`, `sandbox_conformance`,
`model_client_conformance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ferrule.models.scripted import Scripted, calls, says

    from .fakes import FakeClock, RecordingApprover

__all__ = ["FakeClock", "RecordingApprover", "Scripted", "calls", "says"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ferrule.models.scripted": (
            "Scripted",
            "calls",
            "says",
        ),
        ".fakes": (
            "FakeClock",
            "RecordingApprover",
        ),
    },
)
