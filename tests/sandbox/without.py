"""Runs a program on a machine that offers less, made out of this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

_PROGRAM = """
import ctypes, os, sys
library = ctypes.CDLL(None, use_errno=True)
user, group = os.geteuid(), os.getegid()
if library.unshare(0x10000000):
    sys.exit(99)
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
write("/proc/self/setgroups", "deny")
write("/proc/self/uid_map", f"1000 {user} 1")
write("/proc/self/gid_map", f"1000 {group} 1")
write("/proc/sys/user/max_user_namespaces", "0")
os.execv(sys.argv[1], sys.argv[1:])
"""
# As an ordinary user: what is executed by a number other than 0 has no capabilities left, not even
# of its own namespace.


def without_user_namespaces(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program where no namespace can be made, neither as a user nor as root. Skips where that
    cannot be set up.
    """
    words = [sys.executable, "-I", "-c", _PROGRAM, *command]
    ran = subprocess.run(
        words, capture_output=True, text=True, check=False, env=env, cwd=cwd, timeout=60
    )
    if ran.returncode == 99:
        pytest.skip("no user namespaces here: this machine is the situation itself")
    return ran
