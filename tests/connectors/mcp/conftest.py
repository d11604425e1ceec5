"""Fixtures; the rest of what these tests share is in `conftest_mcp.py`, which can be imported
beside other folders' own.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conftest_mcp import place

__all__ = ["place"]
