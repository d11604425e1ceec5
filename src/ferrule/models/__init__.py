"""Model clients, a package per provider behind one protocol (`client.Wire`); tool modes and
dialects.

Knows nothing of the handlers of tools.

Packages: `anthropic`, `any_llm`, `dialects`, `http`, `local`, `ollama`, `openai`,
`small_models`, `tool_modes`.
Modules: `answer_folding`, `capabilities`, `client`, `exact_json`, `hosted_tools`, `leak_check`,
`prices`, `provider_errors`, `reasoning_models`, `registry`, `request_encoding`, `scripted`,
`untrusted_text`.
"""
