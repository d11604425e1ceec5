"""The same attacks where the machine offers less: under bubblewrap, and under Landlock alone.

Every fifth row of the table, so that each kind is there; the others are no different. A row that a rung does not hold is
named with the reason, and shown to be not held: a reason that is no longer true fails.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from confined import Confined
from sandbox_rows import ATTACKS, Attack
from sandbox_world import World

from ferrule.guard.sandbox.policy import Bounds, Policy
from ferrule.guard.sandbox.probes import probe
from ferrule.guard.sandbox.rungs import ladder

RUNGS = ("bubblewrap", "landlock")
NOT_HELD = {
    ("landlock", "machine-disk"): "that a file outside exists can be seen: `file_reads` is held partly"
}
ROWS = [row for number, row in enumerate(ATTACKS) if number % 5 == 0 or row.id == "machine-disk"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # Not below /tmp: that is a folder of its own inside bubblewrap.
    built = World(Path(tempfile.mkdtemp(prefix="ferrule-attacks-", dir=Path.home())))
    yield built
    built.close()


@pytest.fixture(scope="module", params=RUNGS)
def rung(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def confined(world: World, rung: str) -> Iterator[Confined]:
    policy = Policy(
        world.root,
        readable=(str(world.library),),
        writable=(str(world.shared),),
        bounds=Bounds(memory=1 << 30, processes=128, file_size=1 << 28),
    )
    found = next((one for one in ladder(policy, probe()) if one.name == rung), None)
    if found is None:
        pytest.skip(f"this machine cannot start `{rung}`: {dict(probe().why)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(world.home))
        patch.setenv("DEPLOY_TOKEN", world.canary().strip())
        built = Confined(replace(policy, require=frozenset()), found)
        yield built
        built.close()


@pytest.mark.proves("sandbox.attacks.lesser-rungs")
@pytest.mark.parametrize("attack", ROWS, ids=lambda attack: attack.id)
def test_nothing_is_reached_where_the_machine_offers_less(
    world: World, confined: Confined, rung: str, attack: Attack
) -> None:
    ended, shown = confined.run(world.text(attack.script), home=world.home)
    reached = bool(world.harm(shown))
    assert reached is ((rung, attack.id) in NOT_HELD), (ended, shown.decode(errors="replace")[-800:])
    assert not ended.alive
