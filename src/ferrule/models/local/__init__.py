"""Models in this process, run by llama.cpp (`xllamacpp`): the embedded one and any GGUF file.

Modules: `client`, `gguf`, `local_exchange`, `pull`, `vector_cache`.
"""
