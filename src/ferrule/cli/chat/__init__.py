"""`ferrule chat`: chat with a model that works in this folder.

Modules: `command`, `hot_reload`, `loop`, `slash_commands`.
"""
