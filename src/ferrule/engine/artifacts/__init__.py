"""Large results: kept aside as artifacts, with a stub for the model and tools that read their
parts.

Modules: `intake`, `stubs`, `tools`.
"""
