"""Test doubles for servers and clocks, and conformance suites for Ferrule's protocols.

Modules: `artifact_conformance`, `byte_stream`, `fakes`, `http_double`, `journal_conformance`,
`ollama_double`, `provider_double`, `pytest_plugin`, `sandbox_conformance`,
`model_client_conformance`.
"""
