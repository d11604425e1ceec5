"""Jobs: runs that wait in a queue of the database and are worked by any machine."""

from __future__ import annotations

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
    "Job",
    "Jobs",
    "QueueUnreachable",
    "UnknownJob",
    "WaitingJob",
]
