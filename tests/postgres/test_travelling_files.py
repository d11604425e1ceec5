"""A run goes on as another user, in a folder of theirs, with journal and files in PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster import Cluster

import ferrule
import recorded_edits

RUNS = int(os.environ.get("FERRULE_TEST_TRAVELS_OF_USERS", "1"))
WORKER = Path(recorded_edits.__file__)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can enter."""
    made = Path(tempfile.mkdtemp(prefix="ferrule-travels-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def find_program(user: str) -> tuple[str, str]:
    """Return a Python of this version that a user may run, and what it has to find modules."""
    here = [str(Path(ferrule.__file__).parent.parent), *site.getsitepackages()]
    for program in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
        command = [program, "-c", "import ferrule, psycopg"]
        try:
            subprocess.run(
                command, env=environment, user=user, check=True, capture_output=True, cwd="/"
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return program, environment["PYTHONPATH"]
    pytest.skip(f"the user `{user}` can run no Python {sys.version_info.minor} with our modules")


@dataclass
class Place:
    """A folder, and who works in it."""

    folder: Path
    user: str | None = None

    def work(self, database: str, name: str, seed: int, turns: int) -> tuple[int, str]:
        """Work a run in a process of its own. Return how that ended, and what it printed."""
        program, modules = sys.executable, ""
        if self.user is not None:
            program, modules = find_program(self.user)
        environment = {
            **os.environ,
            "PYTHONPATH": modules,
            "EDITS_DATABASE": database,
            "EDITS_NAME": name,
            "FERRULE_STATE": str(self.folder.parent / "state"),
            "HOME": str(self.folder.parent),
        }
        done = subprocess.run(
            [program, str(WORKER), str(seed), str(self.folder), str(turns)],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            user=self.user,
            cwd="/",
        )
        if done.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(done.stderr)
        return done.returncode, done.stdout


def make_place(folder: Path, user: str | None = None) -> Place:
    """Make an empty workspace, in a folder of its owner."""
    place = Place(folder / "work", user)
    place.folder.mkdir(parents=True)
    if user is not None:
        shutil.chown(folder, user)
        shutil.chown(place.folder, user)
    return place


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_run_that_another_user_takes_over_after_each_turn_ends_as_an_undisturbed_one(
    seed: int, folder: Path, cluster: Cluster
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can work as another user")
    quiet = make_place(folder / "quiet")
    recorded_edits.make_start(quiet.folder)
    code, printed = quiet.work(cluster.dsn(), f"quiet-{folder.name}", seed, 0)
    assert code == 0
    expected = json.loads(printed)

    first = make_place(folder / "first")
    recorded_edits.make_start(first.folder)
    second = make_place(folder / "second", "nobody")
    for number in range(recorded_edits.TURNS + 1):
        place = (first, second)[number % 2]
        code, printed = place.work(cluster.dsn(), f"killed-{folder.name}", seed, 1)
        assert code == (0 if number == recorded_edits.TURNS else -signal.SIGKILL)

    found = json.loads(printed)
    assert (found["stop"], found["text"]) == (expected["stop"], expected["text"])
    assert found["stop"] == "done"
    if place.user is not None:
        subprocess.run(["chown", "-R", str(os.geteuid()), str(place.folder)], check=True)
    assert recorded_edits.describe(place.folder) == recorded_edits.describe(quiet.folder)
