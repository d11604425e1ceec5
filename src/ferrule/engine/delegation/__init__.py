"""Sub-agents: a call that has another agent do a task, in a session of its own.

Modules: `tool` (the tool `delegate`), `delegation` (what may be delegated), `work` (one delegated
task), `child_session` (its session), `session_delegation` (the driver extension), `sub_agent`,
`roster`, `lineage` (shared budgets), `verification` (checks of the work).
"""
