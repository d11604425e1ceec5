"""Compare two reports: which cases became better or worse, and whether chance can explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Literal

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

from .report import CaseReport, Report, TargetReport, first_failures
from .statistics import (
    ALPHA,
    fisher_exact,
    paired_permutation,
    select_significant,
    smallest_fisher,
)

Direction = Literal["better", "worse", "same"]


@frozen
class CaseChange:
    """A case in both reports.

    Attributes:
        name: The case.
        before: Passed trials and all trials in the first report.
        after: The same in the second.
        p_value: Fisher's exact test; None where the target always does the same.
        is_significant: Whether chance is no good explanation: the target always does the same, or
            the test holds among as many as there are.
        failures: Why the first trial that did not pass in the second report failed.
    """

    name: str
    before: tuple[int, int]
    after: tuple[int, int]
    p_value: float | None
    is_significant: bool
    failures: tuple[str, ...] = ()

    @property
    def difference(self) -> Fraction:
        """The second share of passed trials minus the first."""
        return Fraction(*self.after) - Fraction(*self.before)

    @property
    def direction(self) -> Direction:
        """Whether it became better or worse."""
        if self.difference == 0:
            return "same"
        return "better" if self.difference > 0 else "worse"


@frozen
class TargetComparison:
    """One target in both reports.

    Attributes:
        before: Its report in the first.
        after: Its report in the second.
        cases: The cases that both have, with the same expectations.
        p_value: Whether all cases together changed: the exact permutation test of the differences;
            None where the target always does the same.
        edited: Cases that ask or expect something else in the second report.
        only_before: Cases that only the first has.
        only_after: Cases that only the second has.
    """

    before: TargetReport
    after: TargetReport
    cases: tuple[CaseChange, ...]
    p_value: float | None
    edited: tuple[str, ...] = ()
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The target's name, or both."""
        names = dict.fromkeys((self.before.name, self.after.name))
        return " -> ".join(names)

    @property
    def difference(self) -> Fraction:
        """The mean difference of the cases' shares."""
        total = sum((case.difference for case in self.cases), Fraction(0))
        return total / len(self.cases) if self.cases else Fraction(0)

    @property
    def is_significant(self) -> bool:
        """Whether chance is no good explanation for the difference of all cases together."""
        if self.p_value is None:
            return self.difference != 0
        return self.p_value <= ALPHA

    def select(self, direction: Direction) -> list[CaseChange]:
        """Return the cases that changed in this direction, the largest change first."""
        found = [case for case in self.cases if case.direction == direction]
        return sorted(found, key=lambda case: (-abs(case.difference), case.name))


@frozen
class Comparison:
    """The comparison of two reports."""

    before: str
    after: str
    targets: tuple[TargetComparison, ...]

    @property
    def has_regressed(self) -> bool:
        """Whether something became worse, and not by chance."""
        return any(
            any(case.is_significant for case in target.select("worse"))
            or (target.is_significant and target.difference < 0)
            for target in self.targets
        )

    def to_json(self) -> str:
        """Return it as JSON."""
        targets = [
            {
                "target": target.name,
                "before": [target.before.passed, len(target.before.trials)],
                "after": [target.after.passed, len(target.after.trials)],
                "difference": float(target.difference),
                "p_value": target.p_value,
                "is_significant": target.is_significant,
                "cases": [{**asdict(case), "direction": case.direction} for case in target.cases],
                "edited": target.edited,
                "only_before": target.only_before,
                "only_after": target.only_after,
            }
            for target in self.targets
        ]
        body = {"kind": "ferrule.evaluation.comparison", "v": 1}
        return encode_json({**body, "has_regressed": self.has_regressed, "targets": targets})


def compare_reports(before: Report, after: Report) -> Comparison:
    """Compare two reports, target by target; one target each is compared whatever its name.

    Raises:
        ConfigError: They have no target, or no case, in common.
    """
    pairs = _pair_targets(before, after)
    compared = tuple(_compare_targets(first, second) for first, second in pairs)
    if not any(one.cases for one in compared):
        raise ConfigError(
            "the reports have no case in common that asks and expects the same",
            code="report",
            hint="run the same file of cases for both",
        )
    return Comparison(f"{before.file} {before.made}", f"{after.file} {after.made}", compared)


def _pair_targets(before: Report, after: Report) -> list[tuple[TargetReport, TargetReport]]:
    if len(before.targets) == len(after.targets) == 1:
        return [(before.targets[0], after.targets[0])]
    later = {target.name: target for target in after.targets}
    pairs = [(one, later[one.name]) for one in before.targets if one.name in later]
    if not pairs:
        names = [", ".join(one.name for one in report.targets) for report in (before, after)]
        raise ConfigError(
            f"the reports have no target in common: {names[0]}, and {names[1]}", code="report"
        )
    return pairs


def _compare_targets(before: TargetReport, after: TargetReport) -> TargetComparison:
    first = {case.name: case for case in before.cases if case.trials}
    second = {case.name: case for case in after.cases if case.trials}
    both = [name for name in first if name in second]
    same = [name for name in both if first[name].digest == second[name].digest]
    is_repeatable = before.is_repeatable and after.is_repeatable
    significant = _find_significant(same, first, second)
    cases = tuple(
        _compare_case(first[name], second[name], is_repeatable, name in significant)
        for name in same
    )
    p_value = None if is_repeatable else paired_permutation([case.difference for case in cases])
    return TargetComparison(
        before,
        after,
        cases,
        p_value,
        tuple(name for name in both if name not in same),
        tuple(name for name in first if name not in second),
        tuple(name for name in second if name not in first),
    )


def _find_significant(
    names: Sequence[str], first: dict[str, CaseReport], second: dict[str, CaseReport]
) -> frozenset[str]:
    tests: dict[str, tuple[float, float]] = {}
    for name in names:
        counts = (_count(first[name]), _count(second[name]))
        tests[name] = (fisher_exact(*counts), smallest_fisher(*counts))
    return select_significant(tests)


def _count(case: CaseReport) -> tuple[int, int]:
    return case.passed, len(case.trials)


def _compare_case(
    before: CaseReport, after: CaseReport, is_repeatable: bool, is_significant: bool
) -> CaseChange:
    counts = (_count(before), _count(after))
    if is_repeatable:
        changed = Fraction(*counts[0]) != Fraction(*counts[1])
        return CaseChange(before.name, *counts, None, changed, first_failures(after.trials))
    p_value = fisher_exact(*counts)
    return CaseChange(before.name, *counts, p_value, is_significant, first_failures(after.trials))
