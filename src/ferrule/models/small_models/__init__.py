"""Help for models too small to plan: a tool is chosen and its arguments are filled one step at a
time.

Modules: `argument_filling`, `candidates`, `dates`, `evidence`, `lists`, `numbers`, `request`,
`slots`, `spans`, `steps`, `tool_choice`, `units`.
"""
