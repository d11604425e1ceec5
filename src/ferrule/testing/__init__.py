"""Real parts to test with: fakes of what we do not own and the contracts of our seams as suites.

Modules: `artifact_conformance`, `byte_stream`, `fakes`, `http_double`, `journal_conformance`,
`ollama_double`, `provider_double`, `pytest_plugin`, `sandbox_conformance`, `wire_conformance`.
"""
