"""Rows of public reports are whole: each says what happened and names a test that exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from made_field_reports import FIRST_TRIES, Report, read_reports

ROOT = Path(__file__).resolve().parents[2]

SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|CVE-\d{4}-\d{4,}|GHSA(-[a-z0-9]{4}){3}")


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the functions and classes of a test file; none if there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def has_test(report: Report) -> bool:
    """Whether the test that a report names exists; a documented limit needs none."""
    if not report.test:
        return report.behaviour.startswith("Limit:")
    path, _, name = report.test.partition("::")
    parts = name.split("[")[0].split("::")
    return (ROOT / path).is_file() and (not name or set(parts) <= names_in(path))


def test_a_report_has_a_source_a_symptom_and_what_ferrule_does() -> None:
    wrong = [
        report
        for report in read_reports()
        if not (
            SOURCE.fullmatch(report.source)
            and report.symptom.strip()
            and report.behaviour.strip()
            and report.first_try in FIRST_TRIES
        )
    ]
    assert wrong == []


def test_no_report_stands_twice() -> None:
    counts = Counter(report.source for report in read_reports())
    assert [source for source, count in counts.items() if count > 1] == []


def test_every_test_that_a_report_names_exists() -> None:
    assert [(r.source, r.test) for r in read_reports() if not has_test(r)] == []
