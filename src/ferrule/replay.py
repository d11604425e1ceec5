"""Recordings: replay a session without its model, run it again, fork it, take a run back."""

from __future__ import annotations

from .engine.replay.recording import Recording
from .engine.replay.replay import ReplayReport, replay
from .engine.replay.rerun import RerunReport, rerun
from .engine.rewind.rewind import RestoreReport, RewindPoint, fork, plan_rewind, restore_files

__all__ = [
    "Recording",
    "ReplayReport",
    "RerunReport",
    "RestoreReport",
    "RewindPoint",
    "fork",
    "plan_rewind",
    "replay",
    "rerun",
    "restore_files",
]
