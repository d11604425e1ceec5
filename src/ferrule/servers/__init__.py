"""Servers: other programs use an agent or its tools through protocols they know.

Packages: `a2a` (other agents), `acp` (editors), `mcp` (MCP clients), `openai` (chat completions
clients).

Modules: `command`.
"""
