"""Checkers that this machine has see what an edit spoils; `make lab NAME=checkers` tries all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkers import TRIALS, try_checker

BY_FOLDER = {trial.folder: trial for trial in TRIALS if trial.server is None}


@pytest.mark.parametrize("folder", ["c", "c-database", "rust"])
async def test_a_real_checker_reports_the_new_fault_and_not_the_old_one(
    tmp_path: Path, folder: str
) -> None:
    trial = BY_FOLDER[folder]
    if shutil.which(trial.checker) is None:
        pytest.skip(f"{trial.checker} is not installed")
    tried = await try_checker(trial, tmp_path)
    assert tried.is_right, tried.note
