"""`ferrule run`: answer one message and exit.

Modules: `command`, `one_shot`, `schema_option`.
"""
