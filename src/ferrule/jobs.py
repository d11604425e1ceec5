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
from .engine.distributed.jobs import (
    DistributedExtraMissing,
    Job,
    Jobs,
    QueueUnreachable,
    UnknownJob,
    WaitingJob,
)

__all__ = [
    "DistributedExtraMissing",
    "Do",
    "Engine",
    "EngineExtraMissing",
    "EngineOptions",
    "EngineUnreachable",
    "GoOnElsewhere",
    "Job",
    "Jobs",
    "QueueUnreachable",
    "Ticket",
    "UnknownJob",
    "WaitingJob",
    "WithdrawingEngine",
]
