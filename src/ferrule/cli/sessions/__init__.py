"""`ferrule sessions` and `ferrule audit`: everything that the journal remembers.

Modules: `archive`, `audit`, `command`, `compact`, `recordings`, `rewind`.
"""
