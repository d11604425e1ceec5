"""How many jobs wait and are worked, as metrics of OpenTelemetry.

They are of the whole database, whatever the engine, so one program reports them, not each worker.
Workers can be scaled by the age of the oldest job that waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ferrule._version import __version__

from .jobs import Jobs

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

GAUGES = {
    "waiting": ("{job}", "Jobs that are due and that no worker has."),
    "oldest": ("s", "How long the oldest of these has been due."),
    "working": ("{job}", "Jobs that are worked."),
    "workers": ("{worker}", "Workers that have any."),
    "leases": ("{session}", "Sessions that some process may write now."),
}


def report_jobs(jobs: Jobs, *, meter_provider: Any = None) -> None:
    """Report the gauges `ferrule.jobs.*` whenever metrics are collected.

    Args:
        jobs: The jobs of a database.
        meter_provider: Makes the metrics; by default that of the program's OpenTelemetry SDK.
    """
    from opentelemetry import metrics

    meter = metrics.get_meter("ferrule", __version__, meter_provider)
    for name, (unit, description) in GAUGES.items():
        observe = partial(_observe, jobs, name)
        meter.create_observable_gauge(f"ferrule.jobs.{name}", [observe], unit, description)


def _observe(jobs: Jobs, name: str, options: CallbackOptions) -> Iterable[Observation]:
    from opentelemetry.metrics import Observation

    yield Observation(getattr(jobs.measure(), name))
