"""The workspace: every file that a tool touches is opened through here, by descriptor, beneath its
root.

Modules: `atomic_write`, `entry`, `folder_trees`, `gitignore`, `hard_links`, `open_beneath`,
`os_errors`, `paths`, `regular_files`, `workspace`.
"""
