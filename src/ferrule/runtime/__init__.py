"""Assemble an agent that is ready to run from a person's settings, for every interface.

`assemble` is the entry point. The modules named after a source of tools (`mcp_servers`,
`a2a_peers`, `http_sources`, `hosted_tools`, `shipped_tools`) read what the settings say of it.

Packages: `http`.
Modules: `a2a_peers`, `assemble`, `attack_results`, `change_lines`, `chosen_plugins`,
`configured_sources`, `deferred_tools`, `file_changes`, `hidden_errors`, `hosted_tools`,
`hot_reload`, `http_sources`, `instruction_text`, `lazy_group`, `mcp_approvals`, `mcp_servers`,
`model_choice`, `model_clients`, `model_discovery`, `sandbox_policy`, `served_folder`,
`session_pool`, `shared_options`, `shipped_tools`, `system_text`, `trial_agents`.
"""
