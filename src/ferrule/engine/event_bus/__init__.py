"""What happens in sessions, for whoever may watch it, while it happens.

Modules: `attachment`, `bus`, `events`, `feed`, `journal_events`, `live_redaction`,
`past_events`, `ring`, `scope`, `subscription`.
"""
