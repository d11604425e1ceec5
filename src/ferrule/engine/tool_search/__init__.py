"""Deferred tools in a session: which of them its model has found, and the tools that find them.

Modules: `discovery`, `index`, `tools`.
"""
