"""What a confined command sees of the machine: folders, masks over protected names, its own home.

Modules: `certificates`, `environments`, `git_config`, `layout`, `linked_files`, `machine_folders`,
`mask_rules`, `masks`, `opened_folders`, `ordinary_names`, `session_folder`, `toolchains`.
"""
