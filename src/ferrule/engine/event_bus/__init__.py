"""The event bus: what happens in sessions, for anyone who may watch it, while it happens.

Modules: `bus`, `feed` (a session's publisher), `subscription`, `scope` (who sees what), `events`,
`attachment` (connects a session), `ring` (recent events), `journal_events` and `past_events` (read
from journals), `live_redaction`.
"""
