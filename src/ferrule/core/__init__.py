"""Values and the machine: what a run *is*.

No I/O, no clock, no threads, and no library but the type system.

Modules: `calls`, `calls_in_flight`, `commands`, `compaction`, `errors`, `events`, `frozen`,
`identity`, `invisible_characters`, `joins`, `lazy_patterns`, `limits`, `machine`, `messages`,
`notices`, `record_events`, `recovery`, `repeat_breaker`, `required_tools`.
"""
