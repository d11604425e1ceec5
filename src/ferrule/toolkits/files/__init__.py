"""Read, write and edit the files of the workspace, and look around in it.

Modules: `browse`, `diff`, `edit_matching`, `edits`, `lines`, `outline`, `preview`,
`read_versions`, `reading`, `tools`.
"""
