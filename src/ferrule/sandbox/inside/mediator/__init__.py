"""The mediator: performs, for a command, the calls that create, open, rename or remove names, or
refuses them.

Modules: `answers`, `attributes`, `callers`, `file_calls`, `file_identity`, `guarded_calls`,
`mediator`, `name_rules`, `notifications`, `opening`, `path_resolution`, `renaming`, `requests`,
`withheld_files`.
"""
