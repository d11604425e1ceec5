"""A slice of the table of `make lab NAME=outputs`: every type in every manner, the modes in turn."""

from __future__ import annotations

import sys

import pytest
from outputs.manners import MANNERS, Manner
from outputs.peers import Case, Worker
from outputs.play import play
from outputs.server import ManneredServer
from outputs.types_asked import ASKED
from outputs.worker import Ferrule, Prepared
from outputs.worker import play as play_over_socket

from ferrule.models.output_modes import OUTPUT_MODES


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.name)
def test_no_manner_leads_to_a_wrong_value(manner: Manner) -> None:
    assert len(ASKED) == 40
    assert len(OUTPUT_MODES) == 4
    first = MANNERS.index(manner)
    for number, asked in enumerate(ASKED):
        mode = OUTPUT_MODES[(first + number) % 4]
        end = play(asked, manner, mode, streamed=bool((first + number // 4) % 2))
        assert end == "right", f"{asked.name}, {mode}"


async def test_no_manner_of_a_model_on_a_server_leads_to_a_wrong_value() -> None:
    modes = ("schema", "tool", "prompt", "grammar")
    async with ManneredServer() as server:
        library = Ferrule(server.url)
        prepared = Prepared(library)
        for manner in range(len(MANNERS)):
            for number in range(manner % 5, len(ASKED), 5):
                place = manner + number
                case = Case(number, manner, modes[place % 4], stream=bool(place // 4 % 2))
                end = await play_over_socket(prepared, case._asdict(), f"{manner}-{number}")
                assert end == "right", case
        await library.close()


STUCK = """
import sys, time
for line in sys.stdin:
    if '"type": 1' in line:
        time.sleep(60)
    if '"type": 2' in line:
        sys.exit(3)
    print('@@{"end": "right"}', flush=True)
"""


async def test_a_library_that_does_not_come_back_from_a_run_is_begun_again() -> None:
    worker = Worker((sys.executable, "-c", STUCK), seconds=1)
    try:
        ends = [await worker.play(Case(number, 0, "tool", False)) for number in (0, 1, 0, 2, 0)]
    finally:
        await worker.stop()
    assert ends == ["right", "not ended", "right", "not ended", "right"]
