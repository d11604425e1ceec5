"""One driver carries out what the machine says; one dispatcher is the only way to a tool.

Packages: `artifacts`, `context`, `delegation`, `distributed`, `event_bus`, `hooks`,
`registration`, `replay`, `rewind`, `telemetry`, `tool_search`.
Modules: `agent`, `agent_reload`, `agent_tools`, `approval_requests`, `available_tools`,
`background`, `budgets`, `cleanup`, `clock`, `direct_calls`, `dispatcher`, `driver`,
`lazy_parts`, `live_events`, `inbox`, `build_system_text`, `recovery`, `reliability`, `result_bounds`,
`rule_names`, `running_calls`, `session`, `session_log`, `threads`, `write_batching`.
"""
