"""Hooks on calls, model requests, turns and sessions: what they are told and what they may answer.

Modules: `events` (payloads and answers), `answers` (strict reading), `chain` (a session's hooks in
order), `call_hooks` (the dispatcher's protocol), `call_adapter` (event hooks on calls), `exchange`
and `messages` (model requests), `session_hooks` (the driver extension).
"""
