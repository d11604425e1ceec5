"""Makes the reader of reports, which also writes their page, importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from machine import Machine, build_machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with build_machine() as built:
        monkeypatch.setenv("HOME", str(built.home))
        yield built
