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
from .engine.distributed.jobs import (
    DistributedExtraMissing,
    Job,
    Jobs,
    QueueUnreachable,
    UnknownJob,
    WaitingJob,
)
from .engine.distributed.outcomes import JobFigures

__all__ = [
    "DistributedExtraMissing",
    "Do",
    "Engine",
    "EngineExtraMissing",
    "EngineOptions",
    "EngineUnreachable",
    "GoOnElsewhere",
    "Job",
    "JobFigures",
    "Jobs",
    "QueueUnreachable",
    "Ticket",
    "UnknownJob",
    "WaitingJob",
    "WithdrawingEngine",
    "report_jobs",
]
