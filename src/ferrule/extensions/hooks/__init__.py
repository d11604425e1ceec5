"""Hooks from files, commands, servers and functions, and guards that ship.

Modules: `claude_settings`, `commands`, `conditions`, `contract`, `custom_events`, `decorator`,
`files`, `guards`, `loading`, `web`.
"""
