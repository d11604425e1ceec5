"""Test doubles for servers and clocks, conformance suites for protocols, and checks of plugins.

Modules: `artifact_conformance`, `console_page`, `fakes`, `http_double`, `journal_conformance`,
`model_client_conformance`, `plugins`, `pytest_plugin`, `sandbox_conformance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ferrule.models.scripted import Scripted, calls, fails, says

    from .console_page import render_page
    from .fakes import FakeClock, RecordingApprover
    from .plugins import call_plugin, check_plugin, make_plugin_agent

__all__ = [
    "FakeClock",
    "RecordingApprover",
    "Scripted",
    "call_plugin",
    "calls",
    "check_plugin",
    "fails",
    "make_plugin_agent",
    "render_page",
    "says",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ferrule.models.scripted": (
            "Scripted",
            "calls",
            "fails",
            "says",
        ),
        ".fakes": (
            "FakeClock",
            "RecordingApprover",
        ),
        ".console_page": ("render_page",),
        ".plugins": ("call_plugin", "check_plugin", "make_plugin_agent"),
    },
)
