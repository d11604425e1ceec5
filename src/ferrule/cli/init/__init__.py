"""`ferrule init`: create an agent project that works at once, a plugin, or a settings file.

Modules: `command`, `plugin_project`, `project`, `settings_template`.
"""
