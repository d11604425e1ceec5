"""Bounds where a shell sets them."""

from __future__ import annotations

import subprocess

import pytest

from ferrule.guard.sandbox.bubblewrapped import bounded
from ferrule.guard.sandbox.policy import Bounds


@pytest.mark.proves("sandbox.rung.bubblewrap")
def test_the_shell_bounds_itself_and_becomes_the_program() -> None:
    script = bounded(Bounds(memory=64 << 20, processes=None, file_size=1 << 20))
    words = [
        "sh",
        "-c",
        script,
        "sh",
        "/bin/sh",
        "-c",
        'echo "$1"; ulimit -f; ulimit -d; ulimit -c',
        "x",
        "a b",
    ]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n") == ["a b", str((1 << 20) // 512), str((64 << 20) // 1024), "0", ""]


@pytest.mark.proves("sandbox.rung.bubblewrap")
def test_without_bounds_only_core_dumps_are_off() -> None:
    assert bounded(Bounds(None, None, None)) == 'ulimit -c 0; exec "$@"'
