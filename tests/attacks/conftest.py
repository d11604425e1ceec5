"""Makes `hostile_world` importable for the tests of this folder, and builds one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hostile_world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A workspace among things that must not be reached."""
    built = World(tmp_path)
    monkeypatch.setenv("HOME", str(built.outside))
    monkeypatch.setenv("DEPLOY_TOKEN", f"{built.marker}-environment")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.delenv("FERRULE_TRACEBACK", raising=False)
    # Here the gate stands alone. The sandbox has tables of its own, and looks into files to know what to cover.
    monkeypatch.setenv("FERRULE_SANDBOX_MODE", "off")
    yield built
    built.close()
