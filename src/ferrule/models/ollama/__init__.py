"""Ollama on its native route, `/api/chat`, the only one that honours `num_ctx` (context window).

Modules: `client`.
"""
