"""Intervals and tests, compared with published values and with counting everything."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.evaluation.statistics import (
    effective_trials,
    fisher_exact,
    paired_permutation,
    select_significant,
    smallest_fisher,
    wilson_interval,
)


def test_wilsons_interval_has_the_published_values() -> None:
    # R. G. Newcombe, 1998, table I, method 3.
    for passed, trials, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(passed, trials) == pytest.approx((low, high), abs=0.00006)
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_fishers_test_of_the_lady_who_tastes_tea() -> None:
    assert fisher_exact((3, 4), (1, 4)) == pytest.approx(34 / 70)
    assert fisher_exact((4, 4), (0, 4)) == pytest.approx(2 / 70)
    assert fisher_exact((5, 5), (5, 5)) == 1.0


counts = st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts, counts)
def test_no_outcome_with_as_many_passes_is_rarer_than_the_smallest(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    passed = first[0] + second[0]
    possible = [
        fisher_exact((count, first[1]), (passed - count, second[1]))
        for count in range(first[1] + 1)
        if 0 <= passed - count <= second[1]
    ]
    assert smallest_fisher(first, second) == min(possible)
    assert fisher_exact(first, second) == pytest.approx(fisher_exact(second, first))


def test_trials_of_a_case_that_all_come_out_the_same_count_as_one() -> None:
    assert effective_trials([(5, 5), (0, 5), (5, 5), (5, 5)]) == pytest.approx(4)
    assert effective_trials([(5, 5)] * 6) == 6
    assert effective_trials([(1, 1), (0, 1), (1, 1)]) == 3
    independent = [(3, 5), (2, 5), (3, 5), (2, 5)]
    assert effective_trials(independent) == pytest.approx(20)
    between = effective_trials([(5, 5), (4, 5), (1, 5), (0, 5)])
    assert 4 < between < 20


@given(st.lists(counts, min_size=1, max_size=8))
def test_trials_are_worth_no_more_than_their_number(cases: list[tuple[int, int]]) -> None:
    total = sum(trials for _, trials in cases)
    assert 0 < effective_trials(cases) <= total + 1e-9


def test_cases_that_never_fail_do_not_hide_the_one_that_broke() -> None:
    one = (fisher_exact((5, 5), (0, 5)), smallest_fisher((5, 5), (0, 5)))
    others = {f"case {number}": (1.0, 1.0) for number in range(29)}
    assert one[0] * 30 > 0.05, "Bonferroni's correction over all thirty would hide it"
    assert select_significant({"broken": one, **others}) == {"broken"}


def test_many_tests_that_could_be_significant_weaken_each_other() -> None:
    tests = {f"case {number}": (0.03, 0.008) for number in range(30)}
    assert select_significant(tests) == frozenset()
    assert select_significant({"alone": (0.03, 0.008)}) == {"alone"}
    assert select_significant({}) == frozenset()


@given(st.lists(st.fractions(-1, 1, max_denominator=5), max_size=7))
def test_the_permutation_test_equals_counting_every_choice_of_signs(
    differences: list[Fraction],
) -> None:
    observed = abs(sum(differences))
    choices = list(product((1, -1), repeat=len(differences)))
    sums = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in choices
    ]
    share = sum(total >= observed for total in sums) / len(choices)
    assert paired_permutation(differences) == pytest.approx(share)
