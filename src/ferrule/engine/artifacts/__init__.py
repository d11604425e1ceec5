"""Large results: kept as artifacts, with a stub for the model and tools that read their parts.

Modules: `intake` (keeps results), `stubs` (what the model reads instead), `tools` (read parts).
"""
