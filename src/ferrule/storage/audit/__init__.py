"""The audit: who wanted what, who allowed it, how it ended, and proof that no record was changed.

| module | what it contains |
|---|---|
| `audit` | all that is known of each call |
| `past_calls` | the calls of many sessions |
| `receipts` | digests of runs and calls, to hand on |
| `export` | the audit as JSON lines |
| `explanation` | a call explained to a person |
| `verification` | checking journals, exports and archives |
| `checkpoints`, `signing` | signed states of sessions; keys |
"""
