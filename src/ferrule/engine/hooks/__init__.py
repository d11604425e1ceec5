"""Hooks on calls, model questions, turns and sessions: what they are told and what they may answer.

Modules: `answers`, `call_adapter`, `call_hooks`, `chain`, `driver`, `events`, `exchange`,
`messages`.
"""
