"""The command line. `root` lists the commands; the module of each is loaded when it is called.

The module that defines a command holds its options and help. What needs the engine, a model or
an event loop is imported in `with lazy_imports():` (`runtime.lazy_imports`) and loaded when it is
used, so that `--help` stays fast.

Packages: `chat`, `doctor`, `imports`, `init`, `run`, `sessions`, `setup`,
`tools`.
Modules: `a2a`, `completion`, `confirmation`, `distributed`, `download_progress`, `entry`, `eval`,
`exit_codes`, `import_path`, `line_input`, `live_output`, `man_pages`, `mcp`, `models`,
`new_files`, `permission_prompt`, `plugins`, `policy`, `root`, `rows`, `skills`, `terminal`,
`terminal_agent`, `tool_cards`, `trust`, `uninstall`, `validate`, `validation_report`.
"""
