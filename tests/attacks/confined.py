"""A sandbox for tests that are not async: its event loop runs in a thread, so that one sandbox
serves a whole table.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sandbox_world import World

from containers import use_container_engine
from ferrule.permissions.child_environment import filter_environment
from ferrule.sandbox.backends.container_arguments import PYTHON as IMAGE_PYTHON
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import SandboxBackend, available_backends
from ferrule.sandbox.command import Capture, Command, CommandResult
from ferrule.sandbox.policy import ResourceLimits, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

T = TypeVar("T")


class Confined:
    """Runs shell texts in `root` under a policy, held by the best backend or by `backend`."""

    def __init__(self, policy: SandboxPolicy, backend: SandboxBackend | None = None) -> None:
        self.root = policy.root
        self._backend = backend
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="confined")
        self._thread.start()
        self.sandbox = self._do(self._make(policy))

    async def _make(self, policy: SandboxPolicy) -> Sandbox:
        return Sandbox(policy, backend=self._backend)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=180)

    def run(
        self, text: str, *, timeout: float = 20, home: Path | None = None, **more: str
    ) -> tuple[CommandResult, bytes]:
        """How it ended and what it printed, both outputs together."""
        return self._do(self._run(text, timeout, home, more))

    def run_at_once(self, stay: list[str], end: list[str], go: Path, *, home: Path) -> bytes:
        """What commands printed that ran at once. Those of `stay` begin first; `go` is made when
        all of `end` are over.
        """
        return self._do(self._run_at_once(stay, end, go, home))

    async def _run_at_once(self, stay: list[str], end: list[str], go: Path, home: Path) -> bytes:
        staying = [asyncio.create_task(self._run(text, 20, home, {})) for text in stay]
        shown = [(await self._run(text, 20, home, {}))[1] for text in end]
        go.parent.mkdir(parents=True, exist_ok=True)
        go.touch()
        shown += [printed for _, printed in await asyncio.gather(*staying)]
        return b"".join(shown)

    async def _run(
        self, text: str, timeout: float, home: Path | None, more: dict[str, str]
    ) -> tuple[CommandResult, bytes]:
        kept = Capture(1 << 20, 1 << 20)
        variables = {**os.environ, **({"HOME": str(home)} if home else {})}
        environment = filter_environment(
            variables, overrides={"PWD": str(self.root), **more}
        ).values
        directory = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        bash = shutil.which("bash")
        assert bash is not None
        if self.sandbox.protections().backend == "container":
            # The interpreter of the machine is not there: an attack in it would prove nothing.
            text = text.replace(os.path.realpath(sys.executable), IMAGE_PYTHON)
        try:
            ended = await self.sandbox.run(
                Command(
                    ("bash", "--noprofile", "--norc", "-c", text),
                    bash,
                    directory,
                    environment,
                    kept,
                    timeout=timeout,
                )
            )
        finally:
            os.close(directory)
        return ended, kept.text().encode("utf-8", "surrogateescape")

    def change_policy(self, policy: SandboxPolicy) -> None:
        """What holds from the next command on, as after a person's answer."""
        self._do(self.sandbox.change_policy(policy))

    def close(self) -> None:
        self._do(self.sandbox.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def attacked() -> Iterator[World]:
    """A world to attack. Not below /tmp: that is a folder of its own inside a sandbox."""
    built = World(Path(tempfile.mkdtemp(prefix="ferrule-attacks-", dir=Path.home())))
    try:
        yield built
    finally:
        built.close()


def find_backend(name: str, policy: SandboxPolicy) -> SandboxBackend:
    """The backend of this name; the test is skipped where the machine does not have it."""
    refused = use_container_engine() if name == "container" else ""
    found = next((one for one in available_backends(policy, probe()) if one.name == name), None)
    if found is None:
        pytest.skip(f"this machine cannot start `{name}`: {refused or dict(probe().why)}")
    return found


@contextmanager
def confined_by(world: World, backend: str) -> Iterator[Confined]:
    """Commands in a world, held by this backend; skipped where the machine does not have it."""
    policy = SandboxPolicy(
        world.root,
        readable=(str(world.library),),
        writable=(str(world.shared),),
        limits=ResourceLimits(memory=1 << 30, processes=128, file_size=1 << 28),
    )
    found = find_backend(backend, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(world.home))
        patch.setenv("DEPLOY_TOKEN", world.canary().strip())
        built = Confined(replace(policy, require=frozenset()), found)
        try:
            yield built
        finally:
            built.close()
