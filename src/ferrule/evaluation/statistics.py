"""Intervals and tests of significance for shares of passed trials. Pure functions.

* `wilson_interval`: E. B. Wilson, 1927; holds for few trials and for shares near 0 and 1.
* `effective_trials`: trials of one case are alike, so they tell less than as many cases would. The
  design effect (L. Kish, 1965) by the intraclass correlation says how much less: if all trials of a
  case come out the same, they count as one.
* `fisher_exact`: R. A. Fisher, 1922, two-sided: the sum of all tables that are no likelier.
* `select_significant`: R. E. Tarone, 1990: Bonferroni's correction among those tests that could
  have come out significant at all. Cases that always pass do not weaken the others.
* `paired_permutation`: the exact test of the sum of differences, each with its sign flipped or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import comb, lcm, sqrt

Z_95 = 1.959963984540054
ALPHA = 0.05
"""The chance that any of several tests is called significant and is not."""


def wilson_interval(passed: float, trials: float) -> tuple[float, float]:
    """Return the interval of a share, with 95 % confidence; (0, 1) without trials."""
    if trials <= 0:
        return 0.0, 1.0
    z = Z_95
    share = passed / trials
    middle = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def effective_trials(counts: Sequence[tuple[int, int]]) -> float:
    """Return how many independent trials the trials of these cases are worth.

    Args:
        counts: Passed trials and all trials of each case.
    """
    groups = [(passed, trials) for passed, trials in counts if trials]
    total = sum(trials for _, trials in groups)
    if len(groups) < 2 or total <= len(groups):
        return float(total)
    mean = sum(passed for passed, _ in groups) / total
    between = sum(trials * (passed / trials - mean) ** 2 for passed, trials in groups)
    within = sum(passed * (trials - passed) / trials for passed, trials in groups)
    typical = (total - sum(n * n for _, n in groups) / total) / (len(groups) - 1)
    mean_between = between / (len(groups) - 1)
    mean_within = within / (total - len(groups))
    spread = mean_between + (typical - 1) * mean_within
    if spread <= 0:
        # Everything passed, or nothing did: the trials of a case agree completely.
        return float(len(groups))
    alike = min(1.0, max(0.0, (mean_between - mean_within) / spread))
    return total / (1 + (total / len(groups) - 1) * alike)


def fisher_exact(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p-value of two shares, each as passed trials and all trials."""
    passed = first[0] + second[0]
    trials = first[1] + second[1]
    low = max(0, passed - second[1])
    high = min(passed, first[1])
    weights = {
        count: comb(first[1], count) * comb(second[1], passed - count)
        for count in range(low, high + 1)
    }
    observed = weights[first[0]]
    return sum(w for w in weights.values() if w <= observed) / comb(trials, passed)


def smallest_fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the smallest p-value of `fisher_exact` for as many passed trials in all."""
    passed = first[0] + second[0]
    low = max(0, passed - second[1])
    high = min(passed, first[1])
    ends = {low, high}
    return min(fisher_exact((end, first[1]), (passed - end, second[1])) for end in ends)


def select_significant(tests: Mapping[str, tuple[float, float]]) -> frozenset[str]:
    """Return the tests that are significant although there are many.

    Args:
        tests: The p-value of each test, and the smallest that it could have had.
    """
    for divisor in range(1, len(tests) + 1):
        possible = [name for name, (_, least) in tests.items() if least <= ALPHA / divisor]
        if len(possible) <= divisor:
            return frozenset(name for name in possible if tests[name][0] <= ALPHA / divisor)
    return frozenset()


def paired_permutation(differences: Sequence[Fraction]) -> float:
    """Return the two-sided p-value of the sum of paired differences.

    It is the share of all choices of signs whose sum is as far from 0, counted exactly.
    """
    changed = [one for one in differences if one]
    scale = lcm(*(one.denominator for one in changed)) if changed else 1
    steps = [int(one * scale) for one in changed]
    sums: Counter[int] = Counter({0: 1})
    for step in steps:
        grown: Counter[int] = Counter()
        for total, ways in sums.items():
            grown[total + step] += ways
            grown[total - step] += ways
        sums = grown
    observed = abs(sum(steps))
    extreme = sum(ways for total, ways in sums.items() if abs(total) >= observed)
    return extreme / 2 ** len(steps)
