"""The model's context window: what fills it, when a conversation is compacted, and how.

Modules: `compaction`, `compaction_plan`, `options`, `texts`, `usage`, `window`.
"""
