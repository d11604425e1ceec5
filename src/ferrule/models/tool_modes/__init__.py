"""How tools are called (`native`, `constrained`, `text`, `commands`), and falling from one mode to
the next.

Modules: `commands`, `constrained`, `live_probe`, `plain_conversation`, `reply_reader`,
`second_try`, `selection`, `text`.
"""
