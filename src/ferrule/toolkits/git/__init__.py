"""Git: `git_command` for reading, and single operations as typed tools with receipts.

Modules: `attempt`, `branch_operations`, `catalog`, `changes`, `command`, `file_access`,
`finder`, `options`, `read_operations`, `readable_repository`, `receipt`, `refs`, `remote`,
`run`, `settings`, `staging`, `tools`, `withheld_files`, `writable_repository`.
"""
