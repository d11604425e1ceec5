"""A slice of the table of `make outputs`: every type in every manner, the modes in turn."""

from __future__ import annotations

import pytest
from outputs.manners import MANNERS, Manner
from outputs.play import play
from outputs.types_asked import ASKED

from ferrule.models.output_modes import OUTPUT_MODES


@pytest.mark.proves("outputs.table")
@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.name)
def test_no_manner_leads_to_a_wrong_value(manner: Manner) -> None:
    assert len(ASKED) == 40
    assert len(OUTPUT_MODES) == 4
    first = MANNERS.index(manner)
    for number, asked in enumerate(ASKED):
        mode = OUTPUT_MODES[(first + number) % 4]
        end = play(asked, manner, mode, streamed=bool((first + number // 4) % 2))
        assert end == "right", f"{asked.name}, {mode}"
