"""`ferrule run`: answer one message and exit.

Modules: `command`, `run`.
"""
