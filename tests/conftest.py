"""Shared by all tests: nothing of the person's own folders is read or written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# That a machine is busy is no finding about Ferrule. How many cases there are and how large they may be stays bounded.
# Tests that want more cases than these say so.
settings.register_profile("shared-machine", max_examples=30, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """State and settings of Ferrule in a folder of this test."""
    home = tmp_path_factory.mktemp("ferrule-home")
    monkeypatch.setenv("FERRULE_STATE", str(home / "state"))
    monkeypatch.setenv("FERRULE_CONFIG", str(home / "config"))
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OLLAMA_HOST",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "http_proxy",
        "https_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    yield home
