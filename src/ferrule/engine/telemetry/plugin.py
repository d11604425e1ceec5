"""The plugin `telemetry`: export where OpenTelemetry's standard variables name a collector.

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
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import Parts, PartsInternals, Setup

if TYPE_CHECKING:
    from .telemetry import Telemetry

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


@frozen
class OpenTelemetry:
    """Spans and metrics of runs, requests and calls, for a program.

    Attributes:
        tracer_provider: Makes the spans; by default that of the program's OpenTelemetry SDK.
        meter_provider: Makes the metrics; by default likewise.
        agent: The agent's name in them.
    """

    name: ClassVar[str] = "telemetry"
    tracer_provider: Any = None
    meter_provider: Any = None
    agent: str = ""

    def setup(self, setup: Setup) -> Parts:
        """Return what makes the spans, which MCP servers find to pass the trace on."""
        from .telemetry import Telemetry

        return _make_parts(
            Telemetry(
                tracer_provider=self.tracer_provider,
                meter_provider=self.meter_provider,
                find_address=setup.internals.find_address,
                agent=self.agent,
            )
        )


@frozen
class TelemetryExport:
    """The same for an interface: sent where OpenTelemetry's standard variables say."""

    name: ClassVar[str] = "telemetry"

    def setup(self, setup: Setup) -> Parts:
        """Return what makes the spans; nothing if the variables name no collector."""
        global _started  # noqa: PLW0603  one exporter for the process, as the variables are
        if setup.environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return Parts()
        if not any(setup.environment.get(name) for name in ENDPOINTS):
            return Parts()
        with _lock:
            if _started is None:
                _started = _start(setup)
            telemetry = _started
        return Parts() if telemetry is None else _make_parts(telemetry)


def _make_parts(telemetry: Telemetry) -> Parts:
    return Parts(resources=(telemetry,), internals=PartsInternals(listeners=(telemetry,)))


def _start(setup: Setup) -> Telemetry | None:
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
        setup.notice(
            "the environment names an OpenTelemetry collector, and what sends to it is not "
            f'installed: pip install "{package}"'
        )
        return None
    from .telemetry import Telemetry

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
        tracer_provider=spans,
        meter_provider=metrics,
        find_address=setup.internals.find_address,
        agent=SERVICE,
    )


def _is_sent(variable: str) -> bool:
    return os.environ.get(variable, "otlp").strip().lower() != "none"


def _flush(spans: Any, metrics: Any) -> bool:
    """Send what is left. Return whether it arrived, as far as that can be known."""
    all_spans = spans.force_flush(MOST_MILLISECONDS_AT_EXIT)
    return bool(metrics.force_flush(MOST_MILLISECONDS_AT_EXIT) and all_spans)
