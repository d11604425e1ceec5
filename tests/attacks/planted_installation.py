"""Runs in an environment of the workspace: a command tries to replace its programs."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

SCRIPT = (
    "echo evil > evil; chmod +x evil; mv evil .venv/bin/rg; echo evil > .venv/bin/python; "
    "mv .venv old; rm -rf .venv; echo evil > .venv/lib/python3.*/site-packages/x.pth"
)


async def attack(root: Path) -> None:
    sandbox = Sandbox(SandboxPolicy(root, require=frozenset()))
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    command = Command(
        ("sh", "-c", SCRIPT), "/bin/sh", directory, dict(os.environ), Capture(100, 100), timeout=60
    )
    await sandbox.run(command)
    os.close(directory)
    await sandbox.close()


def read_programs(root: Path) -> dict[str, bytes]:
    return {str(place): place.read_bytes() for place in root.glob(".venv/bin/*")}


def main() -> None:
    root = Path(sys.argv[1])
    before = read_programs(root)
    asyncio.run(attack(root))
    print("unchanged" if read_programs(root) == before else "changed")


main()
