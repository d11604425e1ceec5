"""Sub-agents: a call that has another agent do a task, in a session of its own.

Modules: `tool` (the tool `delegate`), `delegation` (what may be delegated), `task` (one delegated
task), `sub_agent_session` (its session), `session_delegation` (the driver extension), `sub_agent`,
`registry`, `lineage` (shared budgets), `verification` (checks of the work).
"""
