"""The evaluations are programs beside the package: their folder is put where they can be imported
from.
"""

from __future__ import annotations

import sys
from pathlib import Path

EVALS = Path(__file__).parents[2] / "evals"
if str(EVALS) not in sys.path:
    sys.path.append(str(EVALS))
