"""Recorded sessions again: replayed offline, run with another model, or judged by other rules.

Modules: `recording`, `replay`, `rerun`, `what_if`, `what_if_history`.
"""
