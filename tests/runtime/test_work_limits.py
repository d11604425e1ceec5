"""Bounds of what a server works on at a time."""

from __future__ import annotations

import pytest

from ferrule.runtime.http.work_limits import IN_ALL, OF_ONE_PERSON, find_refusal


@pytest.mark.parametrize(
    ("mine", "all_", "said"),
    [
        (0, 0, None),
        (OF_ONE_PERSON - 1, IN_ALL - 1, None),
        (OF_ONE_PERSON, OF_ONE_PERSON, "of your requests"),
        (0, IN_ALL, f"{IN_ALL} requests are in progress"),
    ],
)
def test_one_person_and_all_have_a_bound(mine: int, all_: int, said: str | None) -> None:
    found = find_refusal(mine, all_)
    assert found is None if said is None else said in (found or "")
