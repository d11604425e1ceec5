"""Numbers about past runs, read from their events: tokens, money, time and tools.

Modules: `finished_calls`, `incremental`, `newest`, `spending`, `timeline`, `tools`.
"""
