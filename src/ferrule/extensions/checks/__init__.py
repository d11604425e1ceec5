"""Check files before they are used: `ferrule tools check` and `ferrule validate`.

Modules: `files`, `hooks`, `tool_cases`, `script_text`, `render_tool_file`, `workspace`. Agents and skills are
checked in `workspace`.
"""
