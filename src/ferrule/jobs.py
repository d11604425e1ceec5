"""Jobs: runs that an engine hands to workers on any machine, and what an engine must do."""

from __future__ import annotations

from .engine.distributed.engines import (
    Do,
    Engine,
    EngineExtraMissing,
    EngineOptions,
    EngineUnreachable,
    GoOnElsewhere,
    Ticket,
    WithdrawingEngine,
)
from .engine.distributed.figures import report_jobs
from .engine.distributed.job import Job
from .engine.distributed.jobs import Jobs, UnknownJob
from .engine.distributed.outcomes import JobFigures, JobState, QueueError
from .engine.distributed.worker import Worker, WorkerTimes
from .tools.process_resources import end_process

__all__ = [
    "Do",
    "Engine",
    "EngineExtraMissing",
    "EngineOptions",
    "EngineUnreachable",
    "GoOnElsewhere",
    "Job",
    "JobFigures",
    "JobState",
    "Jobs",
    "QueueError",
    "Ticket",
    "UnknownJob",
    "WithdrawingEngine",
    "Worker",
    "WorkerTimes",
    "end_process",
    "report_jobs",
]
