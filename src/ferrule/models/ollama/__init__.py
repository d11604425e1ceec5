"""Ollama on its native route, `/api/chat`: the only one that honours the context window
(`num_ctx`).

Modules: `client`.
"""
