"""`http.get` and `http.post` of scripts: which hosts they may reach, and how.

Modules: `domains`, `fetch`.
"""
