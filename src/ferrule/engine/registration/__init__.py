"""Tools, hooks and agents that a session gains while it runs.

Modules: `driver`, `exchange`, `registration`, `session_catalog`.
"""
