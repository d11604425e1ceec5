"""Agents as servers: other programs ask an agent of ours, by protocols that they know.

Packages: `a2a`, `acp`, `mcp`, `openai`.
Modules: `command`.
"""
