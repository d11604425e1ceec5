"""Export telemetry where OpenTelemetry's standard variables name a collector.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 ferrule run "…"

Every interface assembles its agents in one place, so every interface exports. What the variables
say about headers, timeouts, compression, batches, resources and the service's name is read by
OpenTelemetry itself; only the name has a default of ours. Without an endpoint nothing is imported.
A repository cannot set variables, and so cannot send anything anywhere.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ferrule.engine import event_bus

if TYPE_CHECKING:
    from ferrule.engine.telemetry.telemetry import Telemetry

ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
SERVICE = "ferrule"
MOST_MILLISECONDS_AT_EXIT = 3_000
"""How long the end of a process waits for what is still to be sent."""

_lock = threading.Lock()
_started: Telemetry | None = None
_buses: weakref.WeakSet[event_bus.Bus] = weakref.WeakSet()


def is_export_wanted() -> bool:
    """Whether the environment names a collector and does not switch telemetry off."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return any(os.environ.get(name) for name in ENDPOINTS)


def export_from(
    bus: event_bus.Bus, notice: Callable[[str], None], find_address: Callable[[str], str]
) -> Any:
    """Export what a bus publishes from now on, once for each bus.

    Args:
        bus: The bus.
        notice: Told if there is no library to export with.
        find_address: Returns the URL of a model's server by the model's full name.

    Returns:
        What an agent of this bus takes among its resources, or None if nothing is exported.
    """
    global _started  # noqa: PLW0603  one exporter for the process, as the variables are
    with _lock:
        if _started is None:
            _started = _start(notice, find_address)
        if _started is not None and bus not in _buses:
            _buses.add(bus)
            _started.listen(bus)
        return _started


def _start(notice: Callable[[str], None], find_address: Callable[[str], str]) -> Telemetry | None:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    exporters = "opentelemetry.exporter.otlp.proto." + ("grpc" if protocol == "grpc" else "http")
    try:
        span_exporter: Any = import_module(f"{exporters}.trace_exporter").OTLPSpanExporter
        metric_exporter: Any = import_module(f"{exporters}.metric_exporter").OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        package = "ferrule[otel]"
        if protocol == "grpc":
            package = "opentelemetry-exporter-otlp-proto-grpc"
        notice(
            "the environment names an OpenTelemetry collector, and what sends to it is not "
            f'installed: pip install "{package}"'
        )
        return None
    from ferrule.engine.telemetry.telemetry import Telemetry

    resource = Resource.create()
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        resource = resource.merge(Resource({"service.name": SERVICE}))
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    readers: list[Any] = []
    if _is_sent("OTEL_TRACES_EXPORTER"):
        spans.add_span_processor(BatchSpanProcessor(span_exporter()))
    if _is_sent("OTEL_METRICS_EXPORTER"):
        readers.append(PeriodicExportingMetricReader(metric_exporter()))
    metrics = MeterProvider(readers, resource=resource, shutdown_on_exit=False)

    # The exporters log each attempt; a person is told once, at the end.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    logging.getLogger("opentelemetry").propagate = False
    sent: list[bool] = []

    def finish() -> None:
        # A collector that does not answer must not keep a process from ending.
        sending = threading.Thread(target=lambda: sent.append(_flush(spans, metrics)), daemon=True)
        sending.start()
        sending.join(MOST_MILLISECONDS_AT_EXIT / 1000)
        if not any(sent):
            address = next(os.environ[name] for name in ENDPOINTS if os.environ.get(name))
            sys.stderr.write(f"ferrule: telemetry could not be sent to {address}\n")

    atexit.register(finish)
    return Telemetry(
        tracer_provider=spans, meter_provider=metrics, find_address=find_address, agent=SERVICE
    )


def _is_sent(variable: str) -> bool:
    return os.environ.get(variable, "otlp").strip().lower() != "none"


def _flush(spans: Any, metrics: Any) -> bool:
    """Send what is left. Return whether it arrived, as far as that can be known."""
    all_spans = spans.force_flush(MOST_MILLISECONDS_AT_EXIT)
    return bool(metrics.force_flush(MOST_MILLISECONDS_AT_EXIT) and all_spans)
