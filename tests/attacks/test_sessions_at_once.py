"""Two sessions of one workspace, whose commands act at the same moment: neither completes what the
other began, where each step alone is allowed.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from planted_world import BACKENDS, open_session, planted_world

TRIES = 200

_RACE = """
import os, time
def wait(name):
    end = time.monotonic() + 20
    while not os.path.exists(name) and time.monotonic() < end:
        pass
def attempt(act):
    try:
        act()
    except OSError:
        pass
for number in range({tries}):
    {act}
"""

RACES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "repository": (
        "f = f'x/{number}'; os.makedirs(f + '/objects'); open(f + '/config', 'w').close(); "
        "open(f + '.go', 'w').close(); attempt(lambda: open(f + '/HEAD', 'x').close())",
        "f = f'x/{number}'; wait(f + '.go'); attempt(lambda: os.mkdir(f + '/refs'))",
        ("x/*/HEAD", "x/*/refs"),
    ),
    "moved below git": (
        "f = f'x/{number}'; os.mkdir(f); open(f + '.go', 'w').close(); "
        "attempt(lambda: os.rename(f, f'.git/modules/{number}'))",
        "f = f'x/{number}'; wait(f + '.go'); attempt(lambda: open(f + '/config', 'x').close())",
        (".git/modules/*", "x/*/config"),
    ),
}  # fmt: skip
"""What one does, what the other does, and what one of them makes in each try."""


def find_reached(root: Path) -> list[Path]:
    """Return repositories that have another name than `.git`, and configurations below it."""
    made = [place for place in root.glob("x/*/HEAD") if (place.parent / "refs").exists()]
    return [*made, *root.glob(".git/modules/*/config")]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("race", RACES)
def test_sessions_of_one_workspace_complete_nothing_together(race: str, backend: str) -> None:
    first, second, tried = RACES[race]
    with planted_world() as world:
        world.plant("mkdir -p x .git/modules")
        sessions = [open_session(world.policy(), backend) for _ in range(2)]
        try:
            with ThreadPoolExecutor() as pool:
                for number, act in enumerate((first, second)):
                    world.write(world.root / f"{number}.py", _RACE.format(tries=TRIES, act=act))
                running = [
                    pool.submit(session.run, f"python3 {number}.py", timeout=100)
                    for number, session in enumerate(sessions)
                ]
                printed = [one.result()[1] for one in running]
        finally:
            for session in sessions:
                session.close()
        assert find_reached(world.root) == []
        assert sum(len([*world.root.glob(name)]) for name in tried) == TRIES, printed
