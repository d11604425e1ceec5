"""Sub-agents: a call that has another agent do a task, in a session of its own.

Modules: `child_session`, `delegation`, `driver`, `lineage`, `roster`, `sub_agent`, `tool`,
`verification`, `work`.
"""
