"""Web requests of scripts (`http.get`, `http.post`): which hosts they may reach, and how.

Modules: `domains`, `fetch`.
"""
