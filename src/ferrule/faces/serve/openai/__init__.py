"""A chat completions endpoint: clients that speak it get work done by an agent, or tool calls from a model that has none."""
