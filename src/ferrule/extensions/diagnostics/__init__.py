"""Diagnostics after edits: what checkers and language servers say that is new.

Modules: `checkers`, `compile_flags`, `findings`, `hook`, `language_server`, `plugin`,
`server_messages`, `server_settings`.
"""
