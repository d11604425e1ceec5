"""Tool search in a session: which deferred tools its model has found, and the tools that find them.

Modules: `discovery`, `index`, `tools`.
"""
