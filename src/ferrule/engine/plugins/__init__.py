"""Plugins: whatever is added to an agent, and how it is put together without conflicts.

Modules: `protocol` (what a plugin is), `plugin_set` (the passes over a list of plugins),
`loading` (plugins by name), `lifetimes` (what a plugin keeps open), `failures` (what is said of an
error in a plugin's code).
"""
