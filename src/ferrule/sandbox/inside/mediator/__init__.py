"""The mediator: performs, or refuses, the calls of a command that create, open or remove names.

Modules: `answers`, `attributes`, `callers`, `file_calls`, `file_identity`, `guarded_calls`,
`mediator`, `name_rules`, `notifications`, `opening`, `path_resolution`, `renaming`, `requests`,
`withheld_files`.
"""
