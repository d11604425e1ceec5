"""Tools, hooks and agents that are added to a session while it runs.

Modules: `registration` (what may be added), `session_catalog` (the session's tools), `exchange`
(how the model learns of them), `session_registration` (the driver extension).
"""
