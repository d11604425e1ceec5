"""`ferrule init`: create an agent project that works at once, or a commented settings file.

Modules: `command`, `project`, `settings_template`.
"""
