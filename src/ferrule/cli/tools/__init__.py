"""`ferrule tools`: the tools there are, calling one, and making new ones.

Modules: `command`, `command_to_tool`, `fields`, `files`, `openapi_import`, `promote`,
`templates`.
"""
