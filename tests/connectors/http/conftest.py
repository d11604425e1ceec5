"""Fixtures; the rest of what these tests share is in `conftest_http.py`, which can be imported."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conftest_http import service

__all__ = ["service"]
