"""Check files before they are used: `ferrule tools check` and `ferrule validate`.

Modules: `files`, `hooks`, `tool_cases`, `script_text`, `tool_file`, `workspace`. Agents and skills
are checked in `workspace`.
"""
