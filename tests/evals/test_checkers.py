"""Checkers that this machine has see what an edit spoils; `make checkers` tries all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkers import TRIALS, try_checker

BY_NAME = {trial.checker: trial for trial in TRIALS}


@pytest.mark.proves("hooks.diagnostics")
@pytest.mark.parametrize("checker", ["gcc", "cargo"])
async def test_a_real_checker_reports_the_new_fault_and_not_the_old_one(
    tmp_path: Path, checker: str
) -> None:
    if shutil.which(checker) is None:
        pytest.skip(f"{checker} is not installed")
    tried = await try_checker(BY_NAME[checker], tmp_path)
    assert tried.is_right, tried.note
