"""Built-ins of scripts. Each asks the run for something, through its own pipeline.

Modules: `builtins`, `commands`, `extending`, `files`, `network`, `parallel`, `scope`, `stores`,
`surroundings`.
"""
