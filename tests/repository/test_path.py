"""How long the walk is from the public door to a handler and back: `make bench` prints it, this keeps it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
from source import ROOT

FUNCTIONS = 60
"""Of the package, entered by a run with one call. The smallest harnesses have 26, frameworks some hundreds."""
FILES = 20
"""May only get smaller; the aim is 12."""


def counting() -> Callable[[], list[int]]:
    """The benchmark's own way to count, so that there is one."""
    spec = importlib.util.spec_from_file_location("benchmarks_run", ROOT / "benchmarks" / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.counted


@pytest.mark.proves("sizes.path")
def test_the_way_of_one_call_is_short() -> None:
    _, _, functions, files = counting()()
    print(f"one call: {functions} functions in {files} files")
    assert functions <= FUNCTIONS
    assert files <= FILES
