"""Makes the modules of this folder importable for its tests, and builds the worlds that they
attack.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from confined import Confined, attacked, confined_by
from hostile_world import World
from sandbox_world import World as SandboxWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A workspace among things that must not be reached."""
    built = World(tmp_path)
    monkeypatch.setenv("HOME", str(built.outside))
    monkeypatch.setenv("DEPLOY_TOKEN", f"{built.marker}-environment")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.delenv("FERRULE_TRACEBACK", raising=False)
    # Here the gate stands alone. The sandbox has tables of its own, and looks into files to know
    # what to cover.
    monkeypatch.setenv("FERRULE_SANDBOX_MODE", "off")
    yield built
    built.close()


@pytest.fixture(scope="module")
def attacked_world() -> Iterator[SandboxWorld]:
    """What commands attack in a sandbox, one of them alone or several together."""
    with attacked() as built:
        yield built


@pytest.fixture(scope="module")
def confined(attacked_world: SandboxWorld, backend: str) -> Iterator[Confined]:
    """A sandbox around it; a test that takes it names the backends (`parametrize("backend", …,
    scope="module")`).
    """
    with confined_by(attacked_world, backend) as built:
        yield built
