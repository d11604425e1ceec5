"""Ferrule binds language models to tools.

    from ferrule import Agent, tool

Names are loaded when they are first used: importing the package loads no provider, web, MCP or
terminal library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .core.calls import Call, ErrorType, Result
    from .core.errors import (
        ConfigError,
        ContextLeak,
        FerruleError,
        JournalError,
        LimitReached,
        ProviderError,
        RetryCall,
        RunCancelled,
        SessionNotFound,
        ToolDefinitionError,
        ToolFailed,
    )
    from .core.identity import Identity
    from .core.limits import Limits
    from .engine.agent import Agent
    from .engine.bus import Bus
    from .engine.bus_scope import Operator, OwnSession, OwnSessions
    from .engine.delegate_tool import ask_agent
    from .engine.hook_chain import Hooks
    from .engine.hook_events import (
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
    from .engine.hooks import Block, Change, Hook, HookBlocked
    from .engine.live import Progress, ReasoningDelta, TextDelta
    from .engine.session import RunResult, Session
    from .engine.sub_agent import DelegationLimits, SubAgent
    from .engine.telemetry import Telemetry
    from .extend.hooks.decorator import hook
    from .guard.redaction import Redactor
    from .guard.workspace import Workspace
    from .models.anthropic import Anthropic
    from .models.ollama import Ollama
    from .models.openai_chat import OpenAIChat
    from .models.openai_responses import OpenAIResponses
    from .models.scripted import Scripted
    from .models.wire import ModelOptions
    from .tools.catalog import Catalog
    from .tools.chunks import Chunks
    from .tools.context import Context
    from .tools.decorator import tool
    from .tools.define import define_tool
    from .tools.definition import COMMAND, READS, URL, WRITES, Risk, SideEffect, Tool
    from .tools.reliability import Reliability
    from .tools.search.option import ToolSearch

_WHERE = {
    "core.calls": ("Call", "ErrorType", "Result"),
    "core.errors": (
        "ConfigError",
        "ContextLeak",
        "FerruleError",
        "JournalError",
        "LimitReached",
        "ProviderError",
        "RetryCall",
        "RunCancelled",
        "SessionNotFound",
        "ToolDefinitionError",
        "ToolFailed",
    ),
    "core.identity": ("Identity",),
    "core.limits": ("Limits",),
    "engine.agent": ("Agent",),
    "engine.bus": ("Bus",),
    "engine.bus_scope": ("Operator", "OwnSession", "OwnSessions"),
    "engine.delegate_tool": ("ask_agent",),
    "engine.hook_chain": ("Hooks",),
    "engine.hook_events": (
        "Action",
        "CompletionPost",
        "CompletionPre",
        "Custom",
        "DelegationPost",
        "DelegationPre",
        "DelegationVerified",
        "EventHook",
        "Failed",
        "Occasion",
        "SessionEnd",
        "SessionStart",
        "ToolPost",
        "ToolPre",
        "TurnEnd",
        "TurnStart",
        "allow",
        "ask",
        "block",
        "delegate",
        "modify",
    ),
    "engine.hooks": ("Block", "Change", "Hook", "HookBlocked"),
    "engine.live": ("Progress", "ReasoningDelta", "TextDelta"),
    "engine.session": ("RunResult", "Session"),
    "engine.sub_agent": ("DelegationLimits", "SubAgent"),
    "engine.telemetry": ("Telemetry",),
    "extend.hooks.decorator": ("hook",),
    "guard.redaction": ("Redactor",),
    "guard.workspace": ("Workspace",),
    "models.anthropic": ("Anthropic",),
    "models.ollama": ("Ollama",),
    "models.openai_chat": ("OpenAIChat",),
    "models.openai_responses": ("OpenAIResponses",),
    "models.scripted": ("Scripted",),
    "models.wire": ("ModelOptions",),
    "tools.catalog": ("Catalog",),
    "tools.chunks": ("Chunks",),
    "tools.context": ("Context",),
    "tools.decorator": ("tool",),
    "tools.define": ("define_tool",),
    "tools.definition": ("COMMAND", "READS", "URL", "WRITES", "Risk", "SideEffect", "Tool"),
    "tools.reliability": ("Reliability",),
    "tools.search.option": ("ToolSearch",),
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]  (loaded by __getattr__)
    "COMMAND",
    "READS",
    "URL",
    "WRITES",
    "Action",
    "Agent",
    "Anthropic",
    "Block",
    "Bus",
    "Call",
    "Catalog",
    "Change",
    "Chunks",
    "CompletionPost",
    "CompletionPre",
    "ConfigError",
    "Context",
    "ContextLeak",
    "Custom",
    "DelegationLimits",
    "DelegationPost",
    "DelegationPre",
    "DelegationVerified",
    "ErrorType",
    "EventHook",
    "Failed",
    "FerruleError",
    "Hook",
    "HookBlocked",
    "Hooks",
    "Identity",
    "JournalError",
    "LimitReached",
    "Limits",
    "ModelOptions",
    "Occasion",
    "Ollama",
    "OpenAIChat",
    "OpenAIResponses",
    "Operator",
    "OwnSession",
    "OwnSessions",
    "Progress",
    "ProviderError",
    "ReasoningDelta",
    "Redactor",
    "Reliability",
    "Result",
    "RetryCall",
    "Risk",
    "RunCancelled",
    "RunResult",
    "Scripted",
    "Session",
    "SessionEnd",
    "SessionNotFound",
    "SessionStart",
    "SideEffect",
    "SubAgent",
    "Telemetry",
    "TextDelta",
    "Tool",
    "ToolDefinitionError",
    "ToolFailed",
    "ToolPost",
    "ToolPre",
    "ToolSearch",
    "TurnEnd",
    "TurnStart",
    "Workspace",
    "__version__",
    "allow",
    "ask",
    "ask_agent",
    "block",
    "define_tool",
    "delegate",
    "hook",
    "modify",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'ferrule' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"ferrule.{_MODULE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
