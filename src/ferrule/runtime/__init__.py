"""Assemble an agent that is ready to run from a person's settings, for every interface.

`assemble` is the entry point. The modules named after a source of tools (`mcp_servers`,
`a2a_peers`, `http_sources`, `hosted_tools`, `shipped_tools`) read what the settings say of it.

Packages: `http`.
Modules: `a2a_peers`, `assemble`, `change_lines`, `code_index`, `configured_sources`,
`diagnostics`, `file_changes`, `hosted_tools`, `hot_reload`, `http_sources`, `instructions`,
`lazy_group`, `mcp_approvals`, `mcp_servers`, `model_choice`, `model_clients`, `model_discovery`,
`options`, `sandbox_claims`, `sandbox_policy`, `session_pool`, `shipped_tools`, `system_text`,
`telemetry_export`, `deferred_tools`, `trial_agents`.
"""
