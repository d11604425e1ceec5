"""`ferrule chat`: chat with a model that works in this folder.

Modules: `command`, `history`, `hot_reload`, `loop`, `slash_commands`.
"""
