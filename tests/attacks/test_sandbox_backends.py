"""The same attacks on the other backends: bubblewrap, a container, and Landlock alone.

A sample of the table, so that each kind is there; `make lab NAME=attacks` takes every row. A row that a backend
does not hold is named with the reason, and shown to be not held: a reason that is no longer true
fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from confined import Confined
from sandbox_rows import ATTACKS, Attack
from sandbox_world import World

from ferrule.sandbox.policy import Protection as A

BACKENDS = ("bubblewrap", "container", "landlock")
_CAN_START = (
    "a supervisor opens files, and starting one is the kernel's alone: `names` is held partly"
)
NOT_HELD = {
    ("landlock", "machine-disk"): (
        "that a file outside exists can be seen: `file_reads` is held partly"
    ),
    ("landlock", "read-start-reserved"): _CAN_START,
    ("landlock", "read-start-reserved-descriptor"): _CAN_START,
}
SHARE = 1 if os.environ.get("FERRULE_TEST_ATTACKS") == "all" else 9
ROWS = [
    row
    for number, row in enumerate(ATTACKS)
    if number % SHARE == 0 or any(row.id == name for _, name in NOT_HELD)
]


@pytest.mark.parametrize("backend", BACKENDS, scope="module")
@pytest.mark.parametrize("attack", ROWS, ids=lambda attack: attack.id)
def test_nothing_is_reached_where_the_machine_offers_less(
    attacked_world: World, confined: Confined, backend: str, attack: Attack
) -> None:
    claims = confined.sandbox.protections().enforcement
    if backend == "container" and attack.id == "machine-fork-bomb" and claims[A.PROCESSES] != "yes":
        pytest.skip("this engine bounds no processes here, and nothing else does for user 0")
    ended, shown = confined.run(attacked_world.text(attack.script), home=attacked_world.home)
    reached = bool(attacked_world.harm(shown))
    assert reached is ((backend, attack.id) in NOT_HELD), (
        ended,
        shown.decode(errors="replace")[-800:],
    )
    assert not ended.surviving_processes
