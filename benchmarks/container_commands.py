"""What a command costs in a container: the first of a session, and those after it, beside the
backend that this machine uses otherwise. The engine is the one that tests would take.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from containers import use_container_engine
from ferrule.sandbox.attacks import make_workspace, run_script
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

SESSIONS = 5
COMMANDS = 40


async def measure(name: str, root: Path) -> tuple[list[float], list[float]]:
    """Seconds of the first command of each session, and of all others."""
    policy = replace(SandboxPolicy(root), require=frozenset())
    backend = next(one for one in available_backends(policy, probe()) if one.name == name)
    first: list[float] = []
    later: list[float] = []
    for _ in range(SESSIONS):
        sandbox = Sandbox(policy, backend=backend)
        for number in range(COMMANDS):
            started_at = time.perf_counter()
            ended, _ = await run_script(sandbox, "true")
            (later if number else first).append(time.perf_counter() - started_at)
            assert ended.exit_code == 0
        await sandbox.close()
    return first, later


def main() -> None:
    refused = use_container_engine()
    if refused:
        sys.exit(f"no container can be run here: {refused}")
    print("milliseconds: median (slowest of twenty)")
    with tempfile.TemporaryDirectory(prefix=".ferrule-bench-", dir=Path.home()) as folder:
        root = make_workspace(Path(folder, "work"))
        for name in ("namespaces", "container"):
            first, later = asyncio.run(measure(name, root))
            slow = statistics.quantiles(later, n=20)[-1]
            print(
                f"{name:12} first command {statistics.median(first) * 1000:7.1f}   "
                f"later commands {statistics.median(later) * 1000:5.1f} ({slow * 1000:.1f})"
            )


if __name__ == "__main__":
    main()
