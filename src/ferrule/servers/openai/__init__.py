"""A chat completions endpoint: clients that speak it get work done by an agent, or tool calls from
a model that has none.

Modules: `agents`, `answer_parts`, `command`, `conversations`, `errors`, `messages`,
`model_relay`, `models`, `parameters`, `requests`, `responses`, `server`.
"""
