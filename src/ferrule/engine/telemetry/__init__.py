"""Spans and metrics of OpenTelemetry, made of what the event bus publishes (`pip install
'ferrule[otel]'`).

Modules: `names`, `state`, `telemetry`.
"""
