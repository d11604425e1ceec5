"""Assemble an agent that is ready to run from a person's settings, for every interface.

`assemble` is the entry point: it chooses plugins (`chosen_plugins`), makes what they may use, and
gives an agent what they add. No module names a single plugin.

Packages: `http`.
Modules: `assemble`, `change_lines`, `chosen_plugins`, `chosen_providers`, `deferred_tools`,
`file_changes`, `hidden_errors`, `hot_reload`, `lazy_group`, `lazy_imports`, `model_choice`,
`model_clients`, `model_discovery`, `resumed_sessions`, `sandbox_findings`, `sandbox_policy`,
`served_folder`, `session_pool`, `shared_options`, `system_text`, `tool_profiles`, `trial_agents`.
"""
