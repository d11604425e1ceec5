"""`ferrule run`: one message worked to its end.

Modules: `command`, `run`.
"""
