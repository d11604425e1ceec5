"""What the evaluation of small models writes down: rows that are not lost, lines that are kept,
tables in a page.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

KEY = ("development", "simple", "constrained")


@pytest.fixture(scope="module")
def report() -> Any:
    path = Path(__file__).parents[2] / "evals" / "bfcl_report.py"
    spec = importlib.util.spec_from_file_location("bfcl_report", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_stopped_run_finds_its_rows_again(report: Any, tmp_path: Path) -> None:
    first = report.Rows(tmp_path / "rows.jsonl")
    first.add(KEY, 0, 2, 1.5)
    first.add(KEY, 8, 1, 0.5)
    first.add(("held-out", "simple", "constrained"), 3, 0, 0.5)
    again = report.Rows(tmp_path / "rows.jsonl")
    assert sorted(again.known(KEY)) == [0, 8]
    assert again.known(KEY)[8]["made"] == 1


def test_a_way_is_one_line_with_a_digit_an_entry(report: Any) -> None:
    rows = {
        n: {"made": made, "seconds": s} for n, made, s in ((0, 2, 9.0), (2, 1, 1.0), (3, 0, 3.0))
    }
    line = report.line_of(KEY, rows)
    assert line.made == "2-10"
    assert (line.asked, round(line.tool), round(line.both)) == (3, 67, 33)
    assert (line.median, line.p95) == (2.0, 3.0)  # the first question starts the model
    assert report.line_of(KEY, rows, timed=False).median is None


def test_what_is_kept_is_replaced_by_way_and_the_rest_stays(report: Any, tmp_path: Path) -> None:
    path = tmp_path / "results" / "bfcl.jsonl"
    other = report.Line("development", "simple", "text", "00")
    report.keep([report.Line(*KEY, "20"), other], path)
    report.keep([report.Line(*KEY, "22")], path)
    assert report.kept(path) == [report.Line(*KEY, "22"), other]


def test_a_table_goes_between_its_markers_or_nowhere(report: Any) -> None:
    page = "a\n<!-- ways: written by evals/small.py -->\nold\n<!-- end of ways -->\nb"
    assert "old" not in report.placed(page, "ways", "new")
    with pytest.raises(ValueError, match="no place for `levers`"):
        report.placed(page, "levers", "new")


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.95, 4), (0.25, 1)])
def test_a_percentile_is_a_value_that_was_measured(report: Any, share: float, value: float) -> None:
    assert report.percentile([4, 1, 3, 2], share) == value
