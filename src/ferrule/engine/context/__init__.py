"""The model's context window: what fills it, when a conversation is compacted, and how.

Modules: `window` (when), `compaction` (how), `compaction_plan` (where to cut), `texts` (what the
model reads instead), `usage` (what fills the window), `options`.
"""
