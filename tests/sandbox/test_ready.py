"""What is made ahead of a command: it waits behind all walls, and if it is lost, the command is
not.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shelled import has_ended, says

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.skipif(
    not probe().namespaces,
    reason=f"no namespaces here: {probe().why.get('namespaces', 'not Linux')}",
)


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(SandboxPolicy(tmp_path))
    await says(sandbox, "true", tmp_path)
    yield sandbox
    await sandbox.close()


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def waiting(sandbox: Sandbox) -> list[int]:
    """Supervisor, pid 1 and the process that becomes the next command, once that one can gain
    nothing. Bounded.
    """
    assert sandbox.server_pid is not None
    for _ in range(3000):
        chain = [sandbox.server_pid]
        while below := _children(chain[-1]):
            chain.append(below[-1])
        if len(chain) == 4 and _status(chain[-1]).get("NoNewPrivs") == "1":
            return chain[1:]
        select.select([], [], [], 0.01)
    raise AssertionError("nothing waits for the next command")


async def test_the_process_of_the_next_command_waits_inside_and_gives_up_the_rest_before_it_runs(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    supervisor, first, command = waiting(sandbox)
    status = _status(command)
    # It enters its view with the last rights that it has, which are those of a namespace in the one
    # that made the mounts.
    assert {status[name] for name in ("CapBnd", "CapInh", "CapAmb")} == {"0" * 16}
    # The supervisor lays mounts in there, and is none of its processes.
    assert len(_status(supervisor)["NSpid"].split()) == len(_status(os.getpid())["NSpid"].split())
    assert _status(first)["NSpid"].split()[-1] == "1"
    _, text = await says(sandbox, "grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status", tmp_path)
    held = dict(line.split(":\t", 1) for line in text.splitlines())
    assert {held[name] for name in held if name.startswith("Cap")} == {"0" * 16}
    assert (held["NoNewPrivs"], held["Seccomp"]) == ("1", "2")
    names = ("user", "mnt", "pid", "net", "ipc", "uts")
    _, text = await says(sandbox, "cd /proc/self/ns && readlink " + " ".join(names), tmp_path)
    own = {os.readlink(f"/proc/self/ns/{name}") for name in names}
    assert len(text.split()) == len(names) and own.isdisjoint(text.split())


@pytest.mark.skipif(os.getuid() != 0, reason="the kernel shows them to root alone")
async def test_the_namespaces_of_the_process_that_waits_are_its_own(sandbox: Sandbox) -> None:
    supervisor, _, command = waiting(sandbox)
    assert os.readlink(f"/proc/{command}/ns/user") != os.readlink(f"/proc/{supervisor}/ns/user")
    for name in ("user", "mnt", "pid", "net", "ipc", "uts"):
        assert os.readlink(f"/proc/{command}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
    assert os.readlink(f"/proc/{supervisor}/ns/pid") == os.readlink("/proc/self/ns/pid")


@pytest.mark.parametrize("which", ["supervisor", "first", "command"])
async def test_a_process_that_is_ended_while_it_waits_costs_no_command(
    sandbox: Sandbox, tmp_path: Path, which: str
) -> None:
    lost = waiting(sandbox)[("supervisor", "first", "command").index(which)]
    os.kill(lost, signal.SIGKILL)
    assert has_ended(lost)
    ended, text = await says(sandbox, "echo run >> times; cat times", tmp_path)
    assert (ended.exit_code, text) == (0, "run\n")


async def test_a_command_that_ends_at_once_is_told_from_its_beginning_to_its_end(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Its end is told by one process and its beginning by another, in any order."""
    async with asyncio.timeout(120):
        for _ in range(20):
            results = await asyncio.gather(
                *(says(sandbox, f"exit {code}", tmp_path) for code in range(3))
            )
            assert [ended.exit_code for ended, _ in results] == [0, 1, 2]
            assert all(
                ended.surviving_processes == () and ended.leftover_processes == ()
                for ended, _ in results
            )
