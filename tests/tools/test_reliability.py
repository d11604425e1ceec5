"""How often and how long a call is tried."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Reliability, tool


@pytest.mark.proves("reliability.attempts")
def test_attempts_count_all_attempts_four_for_what_can_be_repeated_and_one_for_the_rest() -> None:
    assert Reliability().attempts(repeatable=True) == 4
    assert Reliability().attempts(repeatable=False) == 1
    assert Reliability(max_attempts=2).attempts(repeatable=True) == 2
    assert Reliability(max_attempts=3).attempts(repeatable=False) == 3


@pytest.mark.proves("reliability.attempts")
@pytest.mark.parametrize(
    ("effect", "idempotent", "attempts"),
    [
        ("none", False, 4),
        ("read", False, 4),
        ("write", False, 1),
        ("write", True, 4),
        ("execute", False, 1),
        ("external", False, 1),
        ("undeclared", False, 1),
    ],
)
def test_what_can_be_repeated_follows_from_the_side_effect(
    effect: str, idempotent: bool, attempts: int
) -> None:
    @tool(side_effect=effect, idempotent=idempotent)
    def act() -> str:
        return ""

    assert act.reliability.attempts(act.repeatable) == attempts


@given(st.integers(1, 60), st.floats(-1, 1))
@pytest.mark.proves("reliability.waits")
def test_waits_grow_up_to_a_bound_and_vary_by_the_jitter(attempt: int, spread: float) -> None:
    policy = Reliability(backoff=0.2, factor=2, backoff_max=10, jitter=0.25)
    wait = policy.wait(attempt, spread)
    assert 0.2 * 0.75 <= wait <= 10 * 1.25
    assert policy.wait(attempt + 1, 0) >= policy.wait(attempt, 0)


@pytest.mark.proves("reliability.waits")
def test_the_first_waits_double() -> None:
    assert [Reliability().wait(attempt, 0) for attempt in (1, 2, 3)] == [0.2, 0.4, 0.8]


@pytest.mark.proves("reliability.checked")
@pytest.mark.parametrize(
    "wrong", [{"timeout": 0}, {"timeout": -1}, {"max_attempts": 0}, {"retry_on": ("always",)}]
)
def test_a_senseless_policy_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Reliability(**wrong)  # type: ignore[arg-type]
