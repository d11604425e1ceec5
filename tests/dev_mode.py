"""Programs of ours in Python's development mode, where everything that was not closed is said."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SECONDS = 240
"""Seconds that one program may take at the most."""
SLOW = re.compile(r"^Executing <.* took \d+\.\d+ seconds\n?", re.MULTILINE)
"""What asyncio says of a busy machine in Python's development mode."""


def run_python(script: Path, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a program of ours in Python's development mode and return what it prints.

    Nothing may be said on standard error, also not when the interpreter ends: everything that the
    program opened was closed, and nothing that it uses is deprecated.
    """
    ran = run_to_end([sys.executable, "-X", "dev", "-W", "error", str(script)], folder, variables)
    assert not SLOW.sub("", ran.stderr), ran.stderr[-4000:]
    return ran.stdout


def run_to_end(
    arguments: list[str], folder: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed."""
    ran = subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, (
        f"{shlex.join(arguments)}\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}"
    )
    return ran
