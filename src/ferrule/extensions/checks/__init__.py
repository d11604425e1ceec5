"""What can be known of files before they are used: `ferrule tools check` and `ferrule validate`.

Modules: `files`, `hooks`, `others`, `runs`, `scripts`, `tool_file`, `workspace`.
"""
