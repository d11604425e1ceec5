"""A sandbox that holds nothing, for tests of what runs in one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox


def open_unheld(root: str | Path = "/nonexistent") -> Sandbox:
    """Return a sandbox with the backend `none`, whose workspace is `root`."""
    policy = SandboxPolicy(Path(root))
    return Sandbox(policy, backend=available_backends(policy, probe())[-1])


@cache
def share_unheld() -> Sandbox:
    """Return the one such sandbox of this process, which ends with it."""
    return open_unheld()
