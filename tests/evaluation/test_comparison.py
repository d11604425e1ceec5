"""Two reports side by side: what became better and worse, and whether chance explains it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from ferrule.core.errors import ConfigError
from ferrule.evaluation.comparison import compare_reports
from ferrule.evaluation.report import CaseReport, Report, TargetReport, Trial
from ferrule.evaluation.report_formats import (
    format_comparison,
    format_comparison_as_markdown,
    format_report,
    format_report_as_junit,
    format_report_as_markdown,
)

GOOD = Trial(True, output="x", seconds=1.0, cost=0.01)
BAD = Trial(False, ("calls: expected read_file; made: none",), output="y", seconds=1.0, cost=0.01)


def report(cases: dict[str, tuple[int, int]], *, model: str = "m:x", digest: str = "d") -> Report:
    reports = tuple(
        CaseReport(name, digest, 1.0, (GOOD,) * passed + (BAD,) * (trials - passed))
        for name, (passed, trials) in cases.items()
    )
    target = TargetReport(model, "auto", model.startswith("scripted:"), reports)
    return Report("cases.yaml", "2026-01-01T00:00:00Z", "1", (target,))


BEFORE = {"reads": (5, 5), **{f"case {number}": (5, 5) for number in range(29)}}


def test_a_case_that_broke_among_thirty_is_named_and_is_not_called_chance() -> None:
    compared = compare_reports(report(BEFORE), report({**BEFORE, "reads": (0, 5)}))
    (target,) = compared.targets
    (worse,) = target.select("worse")
    assert (worse.name, worse.is_significant) == ("reads", True)
    assert worse.failures == BAD.failures
    assert compared.has_regressed
    text = format_comparison(compared)
    assert "worse: 1 of 30 cases" in text
    assert "reads  5/5     0/5    0.00794  significant" in text
    assert "reads" in format_comparison_as_markdown(compared)
    assert json.loads(compared.to_json())["has_regressed"] is True


def test_one_trial_that_failed_is_named_and_may_be_chance() -> None:
    compared = compare_reports(report(BEFORE), report({**BEFORE, "reads": (4, 5)}))
    (worse,) = compared.targets[0].select("worse")
    assert (worse.name, worse.is_significant) == ("reads", False)
    assert not compared.has_regressed
    assert "chance can explain it" in format_comparison(compared)


def test_many_small_losses_are_a_loss_together() -> None:
    before = {f"case {number}": (1, 1) for number in range(8)}
    after = {f"case {number}": (0, 1) for number in range(8)}
    compared = compare_reports(report(before), report(after))
    (target,) = compared.targets
    assert not any(case.is_significant for case in target.cases)
    assert target.p_value == pytest.approx(2 / 2**8)
    assert compared.has_regressed


def test_what_became_better_is_no_regression() -> None:
    compared = compare_reports(report({**BEFORE, "reads": (0, 5)}), report(BEFORE))
    assert [case.name for case in compared.targets[0].select("better")] == ["reads"]
    assert not compared.has_regressed


def test_each_change_of_a_script_is_real() -> None:
    first = report({"a": (1, 1), "b": (1, 1)}, model="scripted:x")
    second = report({"a": (0, 1), "b": (1, 1)}, model="scripted:y")
    compared = compare_reports(first, second)
    assert compared.targets[0].name == "scripted:x -> scripted:y"
    assert compared.targets[0].p_value is None
    assert compared.has_regressed
    assert "each change is real" in format_comparison(compared)
    assert "no case changed" in format_comparison(compare_reports(first, first))


def test_cases_that_expect_something_else_are_not_compared() -> None:
    first = report({"a": (1, 1), "b": (1, 1)})
    second = report({"a": (0, 1)}, digest="other")
    with pytest.raises(ConfigError, match="no case in common"):
        compare_reports(first, second)
    third = Report(
        "",
        "",
        "",
        (
            TargetReport(
                "m:x", "auto", False, (*first.targets[0].cases[1:], *second.targets[0].cases)
            ),
        ),
    )
    compared = compare_reports(first, third)
    assert compared.targets[0].edited == ("a",)
    assert [case.name for case in compared.targets[0].cases] == ["b"]
    assert "1 cases ask or expect something else now" in format_comparison(compared)


def test_targets_are_compared_by_name_where_there_are_several() -> None:
    two = Report(
        "", "", "", (*report({"a": (1, 1)}).targets, *report({"a": (1, 1)}, model="m:y").targets)
    )
    other = Report(
        "",
        "",
        "",
        (*report({"a": (0, 1)}, model="m:y").targets, *report({"a": (0, 1)}, model="m:z").targets),
    )
    assert [target.name for target in compare_reports(two, other).targets] == ["m:y"]
    with pytest.raises(ConfigError, match="no target in common"):
        compare_reports(two, report({"a": (1, 1)}, model="m:z"))


def test_a_report_shows_intervals_and_says_when_more_trials_say_nothing_new() -> None:
    text = format_report(report({"a": (3, 3), "b|c": (0, 3)}))
    assert "m:x     3/6 50.0 %  9-91 %" in text, "two cases, and not six trials"
    assert "b|c   0/3     0-56 %         no     calls: expected read_file; made: none" in text
    assert "more trials say nothing new" in text
    assert "$0.0600" in text
    assert "b\\|c" in format_report_as_markdown(report({"a": (3, 3), "b|c": (0, 3)}))
    unknown = TargetReport("m:x", "auto", False, (CaseReport("a", "d", 1.0, (Trial(True),)),))
    assert "unknown" in format_report(Report("", "", "", (unknown,)))


def test_junit_has_a_test_for_each_case_and_says_why_it_failed() -> None:
    bad = Trial(False, ("output: must contain 'a\x00b'",))
    cases = (CaseReport("good", "d", 1.0, (GOOD,)), CaseReport("<bad>", "d", 0.5, (bad, bad, GOOD)))
    text = format_report_as_junit(
        Report("c.yaml", "", "", (TargetReport("m:x", "text", False, cases),))
    )
    root = ElementTree.fromstring(text)
    suite = root[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == (
        "m:x (text)",
        "2",
        "1",
    )
    assert [test.get("time") for test in suite] == ["1.000", "1.000"], "two took unknown time"
    failure = suite[1][0]
    assert failure.get("message") == "1 of 3 trials passed, at least 0.5 must"
    assert (
        failure.text
        == "trial 1: output: must contain 'a\ufffdb'\ntrial 2: output: must contain 'a\ufffdb'"
    )
