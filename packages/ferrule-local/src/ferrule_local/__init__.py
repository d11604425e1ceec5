"""Models in this process, run by llama.cpp (`xllamacpp`): the embedded one and any GGUF file.

A plugin of Ferrule: `ferrule-plugin.toml` describes the provider `local`.

Modules:
    client            the model client
    local_exchange    a conversation in which only the chat template writes control tokens
    repetition        ends an answer that repeats itself
    gguf              what a model file says of itself
    known_models      the models that can be fetched by a short name; `templates` are for them
    installed_models  the models on this machine, and whether their bytes were changed
    pull              fetches known models from wheels
    downloads         pulls a model file from a URL or a path
    fetching          what `ferrule models pull` calls: `pull` or `downloads`
    vector_cache      vectors of tool descriptions, kept on disk
    small_models      help for very small models: the tool mode in which they call tools
"""
