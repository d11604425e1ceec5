"""Hooks on calls, model requests, turns and sessions: what they are told and what they may answer.

Modules: `events` (payloads and answers), `answers` (strict reading), `chain` (a session's hooks in
order), `call_hooks` (the dispatcher's protocol), `call_adapter` (event hooks on calls),
`broken_guards` (the log of those that broke), `hooked_exchange` and `messages` (model requests),
`session_hooks` (the driver extension), `stepping` (a run a step at a time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .chain import Hooks
    from .events import EventHook, Payload
    from .session_hooks import SessionHooks
    from .stepping import Step

__all__ = ["EventHook", "Hooks", "Payload", "SessionHooks", "Step"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".chain": ("Hooks",),
        ".events": ("EventHook", "Payload"),
        ".session_hooks": ("SessionHooks",),
        ".stepping": ("Step",),
    },
)
