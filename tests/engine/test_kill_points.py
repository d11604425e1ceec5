"""`kill -9` between two system calls: a resumed run has done each effect once, or says that it
cannot know.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SEED = int(os.environ.get("FERRULE_KILL_SEED", "2026"))
POINTS = int(os.environ.get("FERRULE_KILL_POINTS", "2"))
BATCH = 4


def may_trace() -> bool:
    """Whether a program of ours may be traced: a seccomp filter or `kernel.yama.ptrace_scope` may
    forbid it.
    """
    program = Path(__file__).with_name("killing.py")
    asked = subprocess.run(
        [sys.executable, str(program), str(SEED), "0", "0"],
        check=False,
        capture_output=True,
        text=True,
    )
    return "Operation not permitted" not in asked.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ptrace(2) of Linux")
@pytest.mark.proves("crash.between-system-calls")
@pytest.mark.parametrize("first", range(0, POINTS, BATCH))
def test_killed_between_any_two_system_calls_each_effect_happened_once_or_is_called_unknown(
    first: int, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("killing.py")
    last = min(first + BATCH, POINTS)
    command = [sys.executable, str(program), str(SEED), str(first), str(last)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * BATCH,
    )
    if done.returncode and not may_trace():
        pytest.skip("this machine lets nobody trace a process")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [point for point in found if point["problems"]] == []
    assert done.returncode == 0, done.stderr
    assert [point["point"] for point in found] == list(range(first, last))
    # No two runs make the same number of system calls: one may end before its point comes.
    assert all(point["killed"] or point["state"] == "finished" for point in found)
