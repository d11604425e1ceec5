"""How often and how long a call is tried."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import ConfigError, Reliability, tool
from ferrule.tools.reliability import FAILURE_CLASSES, read_policies, read_policy
from ferrule.tools.toolset import apply_policies


@pytest.mark.proves("reliability.attempts")
def test_attempts_count_all_attempts_four_for_what_can_be_repeated_and_one_for_the_rest() -> None:
    assert Reliability().total_attempts(repeatable=True) == 4
    assert Reliability().total_attempts(repeatable=False) == 1
    assert Reliability(max_attempts=2).total_attempts(repeatable=True) == 2
    assert Reliability(max_attempts=3).total_attempts(repeatable=False) == 3


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

    assert act.reliability.total_attempts(act.is_repeatable) == attempts


@given(st.integers(1, 5_000), st.floats(0, 1))
def test_waits_grow_up_to_a_bound_and_vary_by_the_jitter(retry: int, dice: float) -> None:
    policy = Reliability(backoff=0.2, factor=2, backoff_max=10, jitter=0.25)
    assert 0.4 <= policy.retry_delay(retry, dice) <= 10
    assert 0 <= policy.retry_delay(retry, dice) - policy.retry_delay(retry, 0) <= 0.05 + 1e-9
    assert policy.retry_delay(retry + 1, 0) >= policy.retry_delay(retry, 0)


def test_the_first_retry_waits_a_fifth_of_a_second_and_the_next_ones_double_up_to_half_a_minute() -> (
    None
):
    assert [Reliability().retry_delay(retry, 0) for retry in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert Reliability().retry_delay(1, 1) == pytest.approx(0.21)
    assert Reliability().retry_delay(9, 1) == Reliability().max_delay == 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": math.nan},
        {"max_attempts": 0},
        {"retry_on": ("always",)},
        {"backoff": -1},
        {"factor": 0.5},
        {"factor": math.nan},
        {"backoff_max": math.inf},
        {"jitter": -0.1},
    ],
)
def test_a_senseless_policy_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Reliability(**wrong)  # type: ignore[arg-type]


WRITTEN = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(1, 9),
        "timeout_ms": st.integers(1, 99_999),
        "retry_on": st.lists(st.sampled_from(FAILURE_CLASSES), unique=True),
        "backoff_base_ms": st.integers(0, 5_000),
        "backoff_mult": st.floats(1, 9),
        "backoff_max_ms": st.integers(0, 60_000),
    },
)


@given(source=WRITTEN, one=WRITTEN)
def test_each_field_that_is_left_out_falls_through_by_itself(
    source: dict[str, Any], one: dict[str, Any]
) -> None:
    found = read_policies(source, {"search": one}, "x")
    assert found.policy_for("search") == read_policy({**source, **one}, "x")
    assert found.policy_for("other") == read_policy(source, "x")
    assert read_policies(None, {"search": one}, "x").policy_for("other") == Reliability()


@given(WRITTEN)
def test_a_policy_means_what_was_written(written: dict[str, Any]) -> None:
    found = read_policy(written, "x")
    assert found.max_attempts == written.get("max_attempts")
    assert found.total_attempts(repeatable=True) == written.get("max_attempts", 4)
    assert found.timeout == (written["timeout_ms"] / 1000 if "timeout_ms" in written else None)
    assert found.max_delay == written.get("backoff_max_ms", 30_000) / 1000
    grown = written.get("backoff_base_ms", 100) * written.get("backoff_mult", 2) / 1000
    assert found.retry_delay(1, 0) == pytest.approx(min(grown, found.max_delay))
    retried = [kind for kind in FAILURE_CLASSES if found.should_retry(kind)]
    assert set(retried) == set(written.get("retry_on", FAILURE_CLASSES)) - {"permanent"}


@pytest.mark.proves("reliability.policy-checked")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            {"retry_on": ["5xx", "often"]},
            "(?s)`retry_on`: found `often`.*transient, timeout, 5xx, permanent",
        ),
        ({"retry_on": "transient"}, "`retry_on` must be a list"),
        (
            {"max_retries": 3},
            "(?s)unknown key `max_retries`.*known: max_attempts, timeout_ms, retry_on, backoff",
        ),
        ({"max_attempts": 0}, "(?s)`max_attempts` = 0.*counts all attempts"),
        ({"max_attempts": True}, "`max_attempts` = True"),
        ({"max_attempts": 10**400}, "`max_attempts` = 1000"),
        ({"timeout_ms": "10"}, "`timeout_ms` = '10'"),
        ({"timeout_ms": 0}, "`timeout_ms` = 0"),
        ({"timeout_ms": 1.5}, "`timeout_ms` = 1.5"),
        ({"backoff_base_ms": -1}, "`backoff_base_ms` = -1"),
        ({"backoff_mult": 0.5}, "`backoff_mult` = 0.5"),
        ({"backoff_mult": math.nan}, "`backoff_mult` = nan"),
        ({"backoff_max_ms": 10**12}, "`backoff_max_ms`"),
        (["max_attempts"], "must hold `key: value` pairs"),
    ],
)
def test_what_a_policy_cannot_mean_is_an_error_that_names_it_and_what_is_accepted(
    written: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read_policies(written, None, "server `x`")
    with pytest.raises(ConfigError, match=r"server `x`: `tool_policies\.search`"):
        read_policies(None, {"search": written}, "server `x`")


@pytest.mark.proves("reliability.policy-checked")
def test_server_is_another_word_for_5xx_and_permanent_may_be_named_and_is_never_retried() -> None:
    assert read_policy({"retry_on": ["server"]}, "x") == read_policy({"retry_on": ["5xx"]}, "x")
    assert not read_policy({"retry_on": ["permanent"]}, "x").should_retry("permanent")


def test_what_a_tool_says_of_itself_lies_between_its_entry_and_the_policy_of_its_source() -> None:
    @tool(side_effect="read", timeout=60)
    def slow() -> str:
        return ""

    @tool(side_effect="read")
    def plain() -> str:
        return ""

    given = read_policies(
        {"timeout_ms": 5_000, "max_attempts": 2}, {"plain": {"max_attempts": 7}}, "settings"
    )
    made = {one.name: one.reliability for one in apply_policies([slow, plain], given)}
    assert made == {
        "slow": Reliability(timeout=60, max_attempts=2),
        "plain": Reliability(timeout=5, max_attempts=7),
    }


def test_tools_that_no_policy_speaks_of_stay_the_same_objects() -> None:
    @tool
    def act() -> str:
        return ""

    assert (
        apply_policies([act], read_policies(None, {"other": {"max_attempts": 2}}, "settings"))[0]
        is act
    )
