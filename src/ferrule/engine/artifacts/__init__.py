"""Large results: kept as artifacts, with a stub for the model and tools that read their parts.

Modules: `large_results` (keeps them), `stubs` (what the model reads instead), `tools` (read parts).
"""
