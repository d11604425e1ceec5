"""OpenTelemetry spans and metrics, made from the event bus (`pip install 'ferrule[otel]'`).

Modules: `names` (of the conventions), `plugin`, `state` (of sessions), `telemetry`.
"""
