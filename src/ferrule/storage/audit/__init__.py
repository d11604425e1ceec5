"""Who wanted what, who let it pass and what came of it; and the proof that nobody changed the
record.

Modules: `audit`, `checkpoints`, `export`, `receipts`, `signing`, `verification`, `wording`.
"""
