"""What a confined command sees of the machine: folders, masks over protected names, its own home.

Modules: `certificates`, `description`, `environments`, `git_config`, `git_hooks`, `layout`,
`linked_files`, `machine_folders`, `mask_rules`, `masks`, `mount_points`, `opened_folders`,
`openings`, `ordinary_names`, `package_indexes`, `rebase_steps`, `repository_masks`,
`session_folder`, `siblings`, `toolchains`.
"""
