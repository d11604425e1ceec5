"""Takes away what only Linux has and says that this is a Mac, then runs what it is given.

As a program: `as_on_a_mac.py import MODULE…` or `as_on_a_mac.py run ROOT SCRIPT…`, each script in a
container; prints the exit statuses and outputs as JSON. It shows that nothing on our side of an
engine asks for a call that a Mac lacks. What a Mac itself does otherwise, it does not show.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import json
import os
import signal
import socket
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

ONLY_LINUX = {
    os: (
        "MFD_CLOEXEC O_PATH O_TMPFILE copy_file_range eventfd getxattr listxattr memfd_create "
        "pidfd_open removexattr setns setxattr splice unshare"
    ),
    socket: "MSG_CMSG_CLOEXEC SOCK_CLOEXEC SOCK_NONBLOCK SO_PASSCRED SO_PEERCRED",
    signal: "pidfd_send_signal",
}
GET_PATH = 50
"""`F_GETPATH` of macOS."""


class Machine(tuple[str, ...]):
    """What `os.uname` says on a Mac."""

    sysname, nodename, release, version, machine = ("Darwin", "mac", "24.1.0", "", "arm64")


def pretend() -> None:
    """Be a Mac, as far as modules ask before they are loaded."""
    sysconfig.get_path("purelib")  # what it reads of this Python is named by the platform
    for module, names in ONLY_LINUX.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    os.uname = lambda: Machine(("Darwin", "mac", "24.1.0", "", "arm64"))  # pyright: ignore[reportAttributeAccessIssue]
    real: Any = fcntl.fcntl

    def with_paths(descriptor: Any, command: int, argument: Any = 0) -> Any:
        if command == GET_PATH:
            return os.fsencode(os.readlink(f"/proc/self/fd/{descriptor}")).ljust(1024, b"\0")
        found: Any = real(descriptor, command, argument)
        return found

    fcntl.F_GETPATH = GET_PATH  # pyright: ignore[reportAttributeAccessIssue]
    fcntl.fcntl = with_paths  # pyright: ignore[reportAttributeAccessIssue]
    sys.platform = "darwin"


async def run(root: Path, scripts: list[str]) -> list[tuple[int | None, str]]:
    from containers import find_container_engine
    from ferrule.sandbox.attacks import run_script
    from ferrule.sandbox.backends.probes import probe, use_container
    from ferrule.sandbox.backends.selection import available_backends
    from ferrule.sandbox.policy import SandboxPolicy
    from ferrule.sandbox.sandbox import Sandbox

    engine = find_container_engine()
    assert not isinstance(engine, str)
    # A virtual machine lies in between: files have other identities inside.
    use_container(replace(engine, same_files=False))
    policy = replace(SandboxPolicy(root), require=frozenset())
    backend = next(one for one in available_backends(policy, probe()) if one.name == "container")
    sandbox = Sandbox(policy, backend=backend)
    try:
        results: list[tuple[int | None, str]] = []
        for script in scripts:
            ended, said = await run_script(sandbox, script)
            results.append((ended.exit_code, said))
        return results
    finally:
        await sandbox.close()


def main() -> None:
    pretend()
    if sys.argv[1] == "import":
        for name in sys.argv[2:]:
            importlib.import_module(name)
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    print(json.dumps(asyncio.run(run(Path(sys.argv[2]), sys.argv[3:]))))


if __name__ == "__main__":
    main()
