"""Tools that ship with Ferrule.

Packages: `code_mode`, `commands`, `files`, `git`, `search`, `stdlib`.
Modules: `clock`, `examples`, `packs`, `process`, `remote_mcp`, `subfolder`, `tasks`.
"""
