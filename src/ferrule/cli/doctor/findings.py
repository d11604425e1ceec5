"""What the doctor finds: one line of its report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `level` is `ok`, `note` (works, with less) or `bad` (does not
    work).
    """

    name: str
    level: str
    detail: str
