"""Reads the copy that a captured pipeline has made, as the full `run_command` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ferrule.toolkits.commands.capture import (
    NOTES_SUFFIX,
    CapturePlan,
    describe_copy,
)
from ferrule.toolkits.commands.scratch_files import ScratchFile


def finish_capture(plan: CapturePlan) -> dict[str, Any] | None:
    """Return what a model is told of the copy, or None if there is none. The notes are removed."""
    copy = Path(plan.path)
    if not copy.parent.is_dir():
        return None
    file = ScratchFile(copy.parent.parent, copy.parent.name, copy.name, plan.path)
    notes = file.take(4096, NOTES_SUFFIX)
    descriptor = file.open()
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        return describe_copy(plan, len(opened.read()), notes or b"", plan.path)
