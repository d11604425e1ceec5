"""A sandbox that holds nothing, for tests of what runs in one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.process_resources import close_at_exit


def open_unheld(root: str | Path = "/nonexistent") -> Sandbox:
    """Return a sandbox with the backend `none`, whose workspace is `root`."""
    policy = SandboxPolicy(Path(root))
    return Sandbox(policy, backend=available_backends(policy, probe())[-1])


@cache
def share_unheld() -> Sandbox:
    """Return the one such sandbox of this process, which ends with it."""
    shared = open_unheld()
    _shared.append(shared)
    return shared


_shared: list[Sandbox] = []


def _close_shared() -> None:
    share_unheld.cache_clear()
    while _shared:
        _shared.pop().close_now()


close_at_exit(_close_shared)
