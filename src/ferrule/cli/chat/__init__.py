"""`ferrule chat`: chat with a model that works in this folder.

Modules: `chat_state`, `chat_terminal`, `command`, `file_references`, `hot_reload`, `live_region`,
`loop`, `markdown`, `markdown_stream`, `pictures`, `prompt`, `session_commands`, `slash_commands`,
`status`, `typed_ahead`.
"""
