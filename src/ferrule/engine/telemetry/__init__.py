"""OpenTelemetry spans and metrics, made from the event bus (`pip install 'ferrule[otel]'`).

Modules: `names` (of the conventions), `state` (of sessions), `telemetry`.
"""
