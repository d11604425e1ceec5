"""A sandbox on each backend that this machine offers, for tests of what holds on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

BACKENDS = ("namespaces", "bubblewrap", "landlock")
Opens = Callable[[Path], Sandbox]


@pytest.fixture(params=BACKENDS)
async def opens(request: pytest.FixtureRequest) -> AsyncIterator[Opens]:
    """Makes sandboxes of one backend, closed at the end."""
    made: list[Sandbox] = []

    def open_one(root: Path) -> Sandbox:
        policy = replace(SandboxPolicy(root), require=frozenset())
        backend = next(
            (one for one in available_backends(policy, probe()) if one.name == request.param), None
        )
        if backend is None:
            pytest.skip(f"this machine cannot start `{request.param}`: {dict(probe().why)}")
        made.append(Sandbox(policy, backend=backend))
        return made[-1]

    yield open_one
    for sandbox in made:
        await sandbox.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made
