"""`ferrule tools`: list, show and call tools; check, test and make tool files.

Modules: `command`, `command_to_tool`, `fields`, `files`, `openapi_import`, `promote`,
`templates`.
"""
