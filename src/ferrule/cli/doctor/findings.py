"""One line of the doctor's report. A module of its own: `sandbox_report` is imported late."""

from __future__ import annotations

from ferrule.core.value_class import frozen


@frozen
class Finding:
    """One line of the report. `level` is `ok`, `note` (works, with less) or `bad` (broken)."""

    name: str
    level: str
    detail: str
