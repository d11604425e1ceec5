"""Reports and comparisons as text for people, Markdown, and JUnit for programs that build."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from xml.etree import ElementTree

from .comparison import CaseChange, Comparison, TargetComparison
from .report import CaseReport, Report, TargetReport, first_failures
from .statistics import wilson_interval

Row = Sequence[str]
_HEAD = ("target", "passed", "95 % interval", "cases", "tokens in", "out", "cost", "s/trial")


def format_report(report: Report) -> str:
    """Return a report as a table, with the cases that did not hold."""
    return "\n".join(_format(report, _draw_table, "")) + "\n"


def format_report_as_markdown(report: Report) -> str:
    """Return a report as Markdown."""
    title = f"# Evaluation of {report.file}\n\n{report.made}, Ferrule {report.version}\n"
    return "\n".join([title, *_format(report, _draw_markdown, "### ")]) + "\n"


def _format(
    report: Report, draw: Callable[[Row, Sequence[Row]], str], heading: str
) -> Iterator[str]:
    yield draw(_HEAD, [_target_row(target) for target in report.targets])
    for target in report.targets:
        failed = [case for case in target.cases if case.passed < len(case.trials)]
        if failed:
            yield f"\n{heading}{target.name}: {len(failed)} of {len(target.cases)} cases failed\n"
            yield draw(
                ("case", "passed", "95 % interval", "holds", "first failure"),
                [_case_row(case) for case in failed],
            )
    yield from _notes(report)


def _target_row(target: TargetReport) -> Row:
    sent, written = target.tokens
    holding = sum(case.holds for case in target.cases)
    seconds = target.seconds
    return (
        target.name,
        f"{target.passed}/{len(target.trials)} {format_share(target.share)}",
        format_interval(target.interval),
        f"{holding}/{len(target.cases)} hold",
        f"{sent:,}",
        f"{written:,}",
        format_cost(target.cost),
        "-" if seconds is None else f"{seconds:.2f}",
    )


def _case_row(case: CaseReport) -> Row:
    trials = len(case.trials)
    reason = "; ".join(first_failures(case.trials))
    return (
        case.name,
        f"{case.passed}/{trials}",
        format_interval(wilson_interval(case.passed, trials)),
        "yes" if case.holds else "no",
        _one_line(reason, 160),
    )


def _notes(report: Report) -> Iterator[str]:
    if report.skipped:
        yield f"\n{len(report.skipped)} cases were not run: they have no recording"
    for target in report.targets:
        unjudged = sorted({text for trial in target.trials for text in trial.unjudged})
        if unjudged:
            yield f"\nnot judged: {'; '.join(unjudged)}"
        most = max((len(case.trials) for case in target.cases), default=0)
        if most > 1 and all(case.is_uniform for case in target.cases):
            yield (
                f"\n{target.name}: all trials of each case were the same, so they count as one; "
                "more trials say nothing new"
            )
    if report.judge is not None:
        judge = report.judge
        yield (
            f"\njudged by {judge.model}: {judge.input_tokens:,} tokens in, "
            f"{judge.output_tokens:,} out, cost {format_cost(judge.cost)}"
        )


# ---- comparisons


def format_comparison(comparison: Comparison) -> str:
    """Return a comparison as text, with the cases that became worse and better."""
    return "\n".join(_format_comparison(comparison, _draw_table, "")) + "\n"


def format_comparison_as_markdown(comparison: Comparison) -> str:
    """Return a comparison as Markdown."""
    lines = _format_comparison(comparison, _draw_markdown, "### ")
    return "\n".join(["# Comparison of two evaluations\n", *lines]) + "\n"


def _format_comparison(
    comparison: Comparison, draw: Callable[[Row, Sequence[Row]], str], heading: str
) -> Iterator[str]:
    yield f"before: {comparison.before}\nafter:  {comparison.after}\n"
    for target in comparison.targets:
        yield draw(
            ("", "passed", "95 % interval", "tokens in", "out", "cost", "s/trial"),
            [_side_row("before", target.before), _side_row("after", target.after)],
        )
        yield f"\n{heading}{target.name}: {describe_change(target)}"
        for word in ("worse", "better"):
            changed = target.select(word)
            if changed:
                yield f"\n{heading}{word}: {len(changed)} of {len(target.cases)} cases\n"
                yield draw(
                    ("case", "before", "after", "p", "", "first failure"),
                    [_change_row(case) for case in changed],
                )
        yield from _list_unmatched(target)
        yield ""


def _side_row(word: str, target: TargetReport) -> Row:
    row = _target_row(target)
    return (f"{word} {row[0]}", row[1], row[2], *row[4:])


def describe_change(target: TargetComparison) -> str:
    """Return a sentence about all cases together."""
    points = 100 * float(target.difference)
    if target.p_value is None:
        if not any(case.difference for case in target.cases):
            return "no case changed"
        return f"{points:+.1f} points; it always does the same, so each change is real"
    verdict = "chance does not explain it" if target.is_significant else "chance can explain it"
    return (
        f"{points:+.1f} points over {len(target.cases)} cases, p = {target.p_value:.3g}: {verdict}"
    )


def _change_row(case: CaseChange) -> Row:
    p_value = "-" if case.p_value is None else f"{case.p_value:.3g}"
    verdict = "significant" if case.is_significant else "may be chance"
    if case.p_value is None:
        verdict = "real"
    return (
        case.name,
        f"{case.before[0]}/{case.before[1]}",
        f"{case.after[0]}/{case.after[1]}",
        p_value,
        verdict,
        _one_line("; ".join(case.failures), 160),
    )


def _list_unmatched(target: TargetComparison) -> Iterator[str]:
    for names, what in (
        (target.edited, "ask or expect something else now, and are not compared"),
        (target.only_before, "are only in the first report"),
        (target.only_after, "are only in the second report"),
    ):
        if names:
            yield f"\n{len(names)} cases {what}: {', '.join(names)}"


# ---- JUnit


def format_report_as_junit(report: Report) -> str:
    """Return a report as JUnit XML: a suite for each target, a test for each case."""
    root = ElementTree.Element("testsuites", name=report.file)
    for target in report.targets:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=target.name,
            tests=str(len(target.cases)),
            failures=str(sum(not case.holds for case in target.cases)),
            errors="0",
            skipped="0",
            timestamp=report.made,
        )
        for case in target.cases:
            _add_test(suite, target, case)
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_test(suite: ElementTree.Element, target: TargetReport, case: CaseReport) -> None:
    seconds = sum(trial.seconds or 0.0 for trial in case.trials)
    test = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_clean_xml(target.name),
        name=_clean_xml(case.name),
        time=f"{seconds:.3f}",
    )
    if case.holds:
        return
    reason = f"{case.passed} of {len(case.trials)} trials passed, at least {case.at_least:g} must"
    failure = ElementTree.SubElement(test, "failure", message=reason)
    lines = [
        f"trial {number}: {text}"
        for number, trial in enumerate(case.trials, 1)
        for text in trial.failures
    ]
    failure.text = _clean_xml("\n".join(lines))


def _clean_xml(text: str) -> str:
    """Return a text without the characters that XML 1.0 does not have."""
    return "".join(
        letter
        if letter in "\t\n\r"
        or " " <= letter <= "\ud7ff"
        or "\ue000" <= letter <= "\ufffd"
        or letter > "\uffff"
        else "\ufffd"
        for letter in text
    )


# ---- words and tables


def format_share(share: float) -> str:
    """Return a share as percent."""
    return f"{100 * share:.1f} %"


def format_interval(interval: tuple[float, float]) -> str:
    """Return an interval of shares as percent."""
    return f"{100 * interval[0]:.0f}-{100 * interval[1]:.0f} %"


def format_cost(cost: float | None) -> str:
    """Return an amount of US dollars; None is not known."""
    return "unknown" if cost is None else f"${cost:.4f}"


def _one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _draw_table(head: Row, rows: Sequence[Row]) -> str:
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _draw_markdown(head: Row, rows: Sequence[Row]) -> str:
    lines = [_markdown_line(head), _markdown_line(["---"] * len(head)), *map(_markdown_line, rows)]
    return "\n".join(lines)


def _markdown_line(cells: Row) -> str:
    escaped = (
        cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in cells
    )
    return f"| {' | '.join(escaped)} |"
