"""Built-ins of scripts. Each asks the run for something, through its own pipeline.

Modules: `dispatch`, `commands`, `session`, `files`, `network`, `parallel`, `scope`, `stores`,
`system`.
"""
