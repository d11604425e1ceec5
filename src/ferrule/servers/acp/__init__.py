"""Serve an agent to editors: the Agent Client Protocol (ACP), version 1, over standard streams.

Modules: `agent`, `call_updates`, `command`, `conversation`, `diffs`, `history`, `outbox`, `peer`,
`permission`, `prompts`, `server`, `session_options`, `session_sources`, `session_updates`,
`streams`.
"""
