"""Tools from elsewhere: MCP servers, HTTP services and A2A agents that other people wrote.

Packages: `a2a`, `http`, `mcp`.
Modules: `cleaning`, `json_values`, `offers`, `schemas`.
"""
