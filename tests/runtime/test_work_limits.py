"""Bounds of what a server works on at a time."""

from __future__ import annotations

import pytest

from ferrule.runtime.http.work_limits import find_refusal


@pytest.mark.parametrize(
    ("mine", "all_", "said"),
    [
        (0, 0, None),
        (31, 999, None),
        (32, 32, "32 of your requests"),
        (0, 1_000, "1000 requests are in progress"),
    ],
)
def test_one_person_and_all_have_a_bound(mine: int, all_: int, said: str | None) -> None:
    found = find_refusal(mine, all_)
    assert found is None if said is None else said in (found or "")
