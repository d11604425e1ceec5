"""Tools from other systems: MCP servers, HTTP services and A2A agents.

The people who wrote them are not the people who run them, so everything they send is bounded,
cleaned and approved before a model sees it.

Packages: `a2a`, `http`, `mcp`.
Modules: `text_cleaning`, `json_values`, `remote_tools`, `bounded_schemas`.
"""
