"""The pages of the console: one module each, with `routes(console)`.

Modules: `artifacts`, `audit`, `costs`, `events`, `playground`, `policy`, `run`, `runs`, `servers`,
`tools`.
"""
