"""The mediator: performs, or refuses, the calls of a command that create, open or remove names.

Modules: `answers`, `attributes`, `caller_process`, `file_identity`, `mediator`, `name_rules`,
`notifications`, `open_and_remove_calls`, `opening`, `path_resolution`, `raw_calls`, `renaming`,
`requests`, `target_files`, `withheld_files`.
"""
