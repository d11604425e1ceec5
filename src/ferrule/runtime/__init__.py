"""From a person's settings to an agent that is ready to work, for every interface.

Packages: `http`.
Modules: `a2a_peers`, `assemble`, `confinement`, `file_changes`, `hosted_tools`, `hot_reload`,
`http_sources`, `instructions`, `lazy_group`, `mcp_approvals`, `mcp_servers`, `model_discovery`,
`options`, `shipped_tools`, `tool_loading`.
"""
