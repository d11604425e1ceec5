"""Nothing that a repository brings or a command leaves decides what commands see of the machine, or
what runs outside of the sandbox.

The rows are in `planted`. Each is tried on every backend of this machine: as a repository brings it
(`first`), planted by a command before another one of the same session (`same`) and of the next one
(`next`). `make attacks` tries all; otherwise each row is tried in one session on one backend.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from planted.environments import PLANTED
from planted.own_code import ATTEMPTS
from planted_world import BACKENDS, READ_ALL, PlantedWorld, list_files

import ferrule
from ferrule.permissions import provenance

SESSIONS = ("first", "same", "next")
EVERY = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
COMBINATIONS = [(backend, session) for session in SESSIONS for backend in BACKENDS]


def choose_rows(rows: tuple[tuple[str, str], ...], kinds: list[tuple[str, ...]]) -> list[object]:
    """Each row with each kind of trial, or with one of them in turn."""
    return [
        pytest.param(script, *kind, id="-".join((name, *kind)))
        for number, (name, script) in enumerate(rows)
        for kind in (kinds if EVERY else [kinds[number % len(kinds)]])
    ]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedWorld]:
    """Not below /tmp: that is a folder of its own inside a sandbox."""
    base = Path(tempfile.mkdtemp(prefix="ferrule-planted-", dir=Path.home()))
    made = PlantedWorld(base)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("VIRTUAL_ENV", str(made.root / "on-path"))
    monkeypatch.setenv("PATH", f"{made.root}/on-path/bin:/usr/local/bin:/usr/bin:/bin")
    yield made
    shutil.rmtree(base)


@pytest.mark.proves("sandbox.planted.environments")
@pytest.mark.parametrize(("script", "backend", "session"), choose_rows(PLANTED, COMBINATIONS))
def test_a_planted_environment_opens_nothing(
    script: str, backend: str, session: str, world: PlantedWorld
) -> None:
    read_all = f"{READ_ALL.format(home=world.home)}; cat data/a; echo seen"
    if session == "first":
        world.plant(script)
        printed = world.run(backend, (read_all,))
    elif session == "same":
        printed = world.run(backend, (script, read_all))
    else:
        printed = world.run(backend, (script,), (read_all,))
    assert world.canary not in printed
    assert "seen" in printed, printed  # the view was built, so that the row was tried


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_canary_of_a_folder_that_is_opened_by_its_own_path_is_read(
    backend: str, world: PlantedWorld
) -> None:
    """What the rows look for is found where it may be."""
    world.plant("mv <H>/Documents/taxes.txt <H>/shared")
    assert world.canary in world.run(
        backend, (READ_ALL.format(home=f"{world.home} {world.home}/shared"),)
    )


@pytest.fixture
def installed(world: PlantedWorld, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment in the workspace that Ferrule runs from."""
    prefix = world.root / "backend/.venv"
    packages = prefix / "lib/python3/site-packages"
    for name in ("bin/rg", "pyvenv.cfg", "lib/python3/site-packages/module.py"):
        world.write(prefix / name, "as it was\n")
    (prefix / "bin/rg").chmod(0o755)
    (prefix / "bin/python").symlink_to("/usr/bin/env")
    (world.root / "current").symlink_to("backend/.venv")
    places = (str(prefix), f"{world.root}/current/bin", str(packages))
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter(places))
    return prefix


@pytest.mark.proves("sandbox.planted.own-code")
@pytest.mark.parametrize(
    ("script", "backend"), choose_rows(ATTEMPTS, [(backend,) for backend in BACKENDS])
)
def test_no_command_replaces_what_ferrule_runs_from(
    script: str, backend: str, installed: Path, world: PlantedWorld
) -> None:
    before = list_files(installed)
    printed = world.run(backend, (script,), ("echo over",))
    assert "over" in printed, printed
    assert list_files(installed) == before
    current = world.root / "current"
    assert not os.path.lexists(current) or current.resolve() == installed


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_lies_beside_our_own_code_is_written_and_moved_as_ever(
    backend: str, installed: Path, world: PlantedWorld
) -> None:
    script = "mkdir -p a/b && mv a c && echo x > backend/new && rm -r c && ln -s backend link"
    assert world.run(backend, (f"{script} && cat link/new current/bin/rg",)) == "x\nas it was\n"


@pytest.mark.proves("sandbox.planted.own-code")
def test_ferrule_in_the_environment_of_a_project_searches_with_its_own_program(
    world: PlantedWorld,
) -> None:
    """A real installation: the process that searches runs on the environment of the workspace."""
    python = world.root / ".venv/bin/python"
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(world.root / ".venv")], check=False
    )
    assert made.returncode == 0
    site = next((world.root / ".venv").glob("lib/python3.*/site-packages"))
    ours = next(Path(sys.prefix).glob("lib/python3.*/site-packages"))
    (site / "x.pth").write_text(f"{Path(ferrule.__file__).parent.parent}\n{ours}\n")
    shutil.copy("/bin/true", world.root / ".venv/bin/rg")
    program = Path(__file__).with_name("planted_installation.py")
    ended = subprocess.run(
        [str(python), str(program), str(world.root)], capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines()[-1:] == ["unchanged"], ended
