"""The program that measures growth: its slopes, and that each of its axes can be measured."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from source import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import growth

SIZES = [10, 100, 1_000, 10_000, 100_000]


@pytest.mark.parametrize(("power", "expected"), [(0, "flat"), (1, "linear")])
def test_what_grows_as_it_should_misses_nothing(power: float, expected: str) -> None:
    slope = growth.fit(SIZES, [0.003 * size**power for size in SIZES])
    assert slope.value == pytest.approx(power)
    assert not slope.misses(expected)


@pytest.mark.parametrize(("power", "expected"), [(0.3, "flat"), (1.3, "linear")])
def test_what_grows_faster_misses(power: float, expected: str) -> None:
    assert growth.fit(SIZES, [0.003 * size**power for size in SIZES]).misses(expected)


def test_noise_of_the_clock_has_no_slope() -> None:
    slope = growth.fit(SIZES, [1e-9, 1e-8, 1e-7, 1e-6, 1e-5])
    assert slope.value == 0


@pytest.mark.usefixtures("commands_are_held")
@pytest.mark.parametrize("name", growth.AXES)
def test_an_axis_gives_the_figures_that_it_is_judged_by(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def once(work: Any, repeats: int = 1) -> float:
        return await cost(work, 1)

    cost = growth.cost
    monkeypatch.setattr(growth, "cost", once)
    axis = growth.AXES[name]
    found = asyncio.run(axis.measure(10, tmp_path))
    assert set(axis.expected) <= set(found)
    assert all(figure.endswith((", s", ", bytes")) for figure in found)
    assert all(value >= 0 for value in found.values())
