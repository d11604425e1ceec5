"""Money on the command line: a bound, what a run cost, and a model whose price nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_bound_for_money_needs_a_price_and_says_what_was_spent(
    ferrule: Any, folder: Path, own_folders: Path, script: Callable[..., str]
) -> None:
    model = script({"say": "done"})
    refused = ferrule("run", "-m", model, "--max-cost", "0.5", "go")
    assert refused.code == 2 and "is not known" in refused.err and "prices.yaml" in refused.err
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config/prices.yaml").write_text('"scripted:*": {input: 1, output: 1}\n')
    paid = ferrule("run", "-m", model, "--max-cost", "0.5", "--json", "go")
    assert (paid.code, json.loads(paid.out)["cost"]) == (0, 0.0)
    unlimited = ferrule("run", "-m", model, "--json", "go")
    assert (unlimited.code, json.loads(unlimited.out)["cost"]) == (0, 0.0)
    (own_folders / "config/prices.yaml").unlink()
    unpriced = ferrule("run", "-m", model, "--json", "go")
    assert (unpriced.code, json.loads(unpriced.out)["cost"]) == (0, None)


def test_a_bound_for_calls_ends_a_run_with_5(
    ferrule: Any, folder: Path, own_folders: Path, script: Callable[..., str]
) -> None:
    look = {"tool": "file_tree", "arguments": {"path": "."}}
    ran = ferrule("run", "-m", script({"call": [look, look]}), "--max-calls", "1", "--json", "go")
    made = json.loads(ran.out)
    assert (ran.code, made["error"]["code"]) == (5, "limit_max_calls")
    assert [one["success"] for one in made["results"]] == [False, False]


@pytest.mark.parametrize("wrong", [("--max-cost", "0"), ("--max-cost", "x"), ("--max-calls", "0")])
def test_a_bound_that_cannot_be_meant_is_a_usage_error(
    ferrule: Any, folder: Path, wrong: tuple[str, str]
) -> None:
    assert ferrule("run", *wrong, "go").code == 2
