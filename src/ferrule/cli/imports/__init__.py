"""`ferrule import`: take over what was set up for another program.

Modules: `command`, `claude_code` (what there is), `claude_settings` (its settings), `claude_texts`
(its agents, commands and skills), `plan` (what would be written, and what has no counterpart).
"""
