"""A chat completions endpoint: an agent, or models with tool calls, for clients of that API.

Modules: `agents`, `answer_parts`, `command`, `conversations`, `errors`, `messages`, `model_relay`,
`models`, `parameters`, `requests`, `responses`, `server`.
"""
