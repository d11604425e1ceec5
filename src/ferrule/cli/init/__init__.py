"""`ferrule init`: an agent project that works as it is made, or a commented settings file.

Modules: `command`, `project`, `settings_template`.
"""
