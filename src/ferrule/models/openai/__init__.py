"""OpenAI's two protocols, chat completions and Responses, and every server that speaks one of them.

Modules: `chat`, `chat_answers`, `chat_exchange`, `differences`, `responses`,
`responses_answers`, `strict_schema`, `tool_types`.
"""
