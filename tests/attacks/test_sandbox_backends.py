"""The same attacks where the machine offers less: under bubblewrap, and under Landlock alone.

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

BACKENDS = ("bubblewrap", "landlock")
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
    ended, shown = confined.run(attacked_world.text(attack.script), home=attacked_world.home)
    reached = bool(attacked_world.harm(shown))
    assert reached is ((backend, attack.id) in NOT_HELD), (
        ended,
        shown.decode(errors="replace")[-800:],
    )
    assert not ended.surviving_processes
