"""Recorded sessions: replayed offline, run again with another model, or checked by other rules.

Modules: `recording`, `replay`, `rerun`, `what_if`, `what_if_history`.
"""
