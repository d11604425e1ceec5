"""Hooks from files, commands, servers and functions, and guards that ship with Ferrule.

Modules: `claude_settings`, `commands`, `conditions`, `contract`, `custom_events`, `decorator`,
`files`, `guards`, `loading`, `web`.
"""
