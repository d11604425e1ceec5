"""Hooks: functions that see, change or refuse what happens in a session.

    from ferrule.hooks import block, hook

    @hook("tool.pre")
    def no_pushes(event):
        if event.name == "git_push":
            return block("ask me first")

The payloads are `engine.hooks.events`; ready-made hooks are the functions at the end of the list.
"""

from __future__ import annotations

from .engine.hooks.call_hooks import Block, Change, Hook
from .engine.hooks.chain import Hooks
from .engine.hooks.events import (
    Action,
    CompletionPost,
    CompletionPre,
    Custom,
    DelegationPost,
    DelegationPre,
    DelegationVerified,
    EventHook,
    Failed,
    Occasion,
    OutputPost,
    SessionEnd,
    SessionStart,
    ToolPost,
    ToolPre,
    TurnEnd,
    TurnStart,
    allow,
    ask,
    block,
    delegate,
    modify,
)
from .extensions.hooks.custom_events import emit_event
from .extensions.hooks.decorator import hook
from .extensions.hooks.guards import (
    command_policy,
    no_secrets_in_arguments,
    prefer_named_tools,
    writes_within,
)

__all__ = [
    "Action",
    "Block",
    "Change",
    "CompletionPost",
    "CompletionPre",
    "Custom",
    "DelegationPost",
    "DelegationPre",
    "DelegationVerified",
    "EventHook",
    "Failed",
    "Hook",
    "Hooks",
    "Occasion",
    "OutputPost",
    "SessionEnd",
    "SessionStart",
    "ToolPost",
    "ToolPre",
    "TurnEnd",
    "TurnStart",
    "allow",
    "ask",
    "block",
    "command_policy",
    "delegate",
    "emit_event",
    "hook",
    "modify",
    "no_secrets_in_arguments",
    "prefer_named_tools",
    "writes_within",
]
