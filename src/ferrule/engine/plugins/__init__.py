"""Plugins: whatever is added to an agent, and how it is put together without conflicts.

Modules: `protocol` (what a plugin is), `plugin_set` (the passes over a list of plugins),
`lifetimes` (what a plugin keeps open).
"""
