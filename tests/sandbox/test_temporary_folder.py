"""Folders in the folder for temporary files that are gone afterwards, however their process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ferrule.sandbox.temporary_folder import TemporaryFolder

MAKE = """
import os, signal, sys, tempfile
tempfile.tempdir = sys.argv[1]
from ferrule.sandbox.temporary_folder import TemporaryFolder
made = TemporaryFolder("test")
(made.path / "a").write_text("x")
{ends}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def end_process(place: Path, ends: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", MAKE.format(ends=ends), str(place)], check=False, timeout=60
    ).returncode


@pytest.mark.parametrize("ends", ["", "raise SystemExit(3)", "1 / 0"])
def test_the_end_of_the_interpreter_removes_it(place: Path, ends: str) -> None:
    end_process(place, ends)
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_whoever_makes_the_next(place: Path) -> None:
    assert end_process(place, "os.kill(os.getpid(), signal.SIGKILL)") == -9
    (left,) = place.iterdir()
    foreign = place / "ferrule-of-another-kind"
    foreign.mkdir()
    made = TemporaryFolder("other")
    assert not left.exists() and foreign.exists()
    again = TemporaryFolder("other")
    assert made.base.exists(), "its process lives"
    made.remove()
    again.remove()
    assert list(place.iterdir()) == [foreign]


def test_a_fork_removes_nothing_of_its_parent(place: Path) -> None:
    made = TemporaryFolder("test")
    child = os.fork()
    if not child:
        made.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert made.path.is_dir()
    made.remove()
    made.remove()
    assert list(place.iterdir()) == []
