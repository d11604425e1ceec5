"""Further providers through any-llm (`pip install 'ferrule[any]'`).

Modules: `client`.
"""
