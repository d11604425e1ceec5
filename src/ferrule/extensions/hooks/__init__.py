"""Hooks from files, commands, servers and functions, and guards that ship with Ferrule.

Modules: `claude_settings`, `commands`, `conditions`, `claude_tool_names`, `claude_contract`,
`custom_events`, `decorator`, `hook_file`, `guards`, `loading`, `web_hooks`.
"""
