"""The command line. `root` lists the commands; each is loaded when it is called.

Packages: `chat`, `doctor`, `init`, `run`, `sessions`, `tools`.
Modules: `a2a`, `completion`, `confirmation`, `distributed`, `entry`, `line_input`,
`live_output`, `mcp`, `models`, `new_files`, `permission_prompt`, `policy`, `problem_report`,
`root`, `skills`, `terminal`, `terminal_agent`, `trust`, `validate`.
"""
