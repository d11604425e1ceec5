"""The same small models on the same server through other frameworks' plain tool calling.

`pydantic_ai_calls` and `langchain_calls` run in environments of their own, `__main__` in ours.
"""
