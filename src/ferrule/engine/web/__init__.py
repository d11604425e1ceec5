"""Web requests of scripts, and media from URLs: which hosts they may reach, and how.

Modules: `domains`, `fetch`.
"""
