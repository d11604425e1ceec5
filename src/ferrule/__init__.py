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
    from .core.calls import ErrorType, ToolCall, ToolResult
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
    from .engine.agent_options import Host, Permissions, Storage, SubAgents, ToolCalling
    from .engine.context.options import ContextOptions
    from .engine.delegation.sub_agent import DelegationLimits, SubAgent
    from .engine.delegation.tool import ask_agent
    from .engine.event_bus.bus import Bus
    from .engine.event_bus.scope import Operator, OwnSession, OwnSessions
    from .engine.hooks.call_hooks import Block, Change, Hook, HookBlocked
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
    from .engine.live_events import Progress, ReasoningDelta, TextDelta
    from .engine.registration.registration import RegistrationLimits
    from .engine.session import RunOptions, RunResult, Session
    from .engine.telemetry.telemetry import Telemetry
    from .extensions.hooks.decorator import hook
    from .models.anthropic.client import Anthropic
    from .models.client import ModelOptions
    from .models.ollama.client import Ollama
    from .models.openai.chat import OpenAIChat
    from .models.openai.responses import OpenAIResponses
    from .models.scripted import Scripted
    from .permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver
    from .permissions.filesystem.workspace import Workspace
    from .permissions.redaction import Redactor
    from .tools.catalog import Catalog
    from .tools.chunked_output import Chunks
    from .tools.context import Context
    from .tools.decorator import tool
    from .tools.define import define_tool
    from .tools.definition import COMMAND, READS, URL, WRITES, Risk, SideEffect, Tool
    from .tools.reliability import Reliability
    from .tools.search.options import ToolSearch

_WHERE = {
    "core.calls": ("ErrorType", "ToolCall", "ToolResult"),
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
    "engine.agent_options": ("Host", "Permissions", "Storage", "SubAgents", "ToolCalling"),
    "engine.context.options": ("ContextOptions",),
    "engine.registration.registration": ("RegistrationLimits",),
    "permissions.approvals": ("ApprovalAnswer", "ApprovalRequest", "Approver"),
    "engine.event_bus.bus": ("Bus",),
    "engine.event_bus.scope": ("Operator", "OwnSession", "OwnSessions"),
    "engine.delegation.tool": ("ask_agent",),
    "engine.hooks.chain": ("Hooks",),
    "engine.hooks.events": (
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
    "engine.hooks.call_hooks": ("Block", "Change", "Hook", "HookBlocked"),
    "engine.live_events": ("Progress", "ReasoningDelta", "TextDelta"),
    "engine.session": ("RunOptions", "RunResult", "Session"),
    "engine.delegation.sub_agent": ("DelegationLimits", "SubAgent"),
    "engine.telemetry.telemetry": ("Telemetry",),
    "extensions.hooks.decorator": ("hook",),
    "permissions.redaction": ("Redactor",),
    "permissions.filesystem.workspace": ("Workspace",),
    "models.anthropic.client": ("Anthropic",),
    "models.ollama.client": ("Ollama",),
    "models.openai.chat": ("OpenAIChat",),
    "models.openai.responses": ("OpenAIResponses",),
    "models.scripted": ("Scripted",),
    "models.client": ("ModelOptions",),
    "tools.catalog": ("Catalog",),
    "tools.chunked_output": ("Chunks",),
    "tools.context": ("Context",),
    "tools.decorator": ("tool",),
    "tools.define": ("define_tool",),
    "tools.definition": ("COMMAND", "READS", "URL", "WRITES", "Risk", "SideEffect", "Tool"),
    "tools.reliability": ("Reliability",),
    "tools.search.options": ("ToolSearch",),
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
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "Block",
    "Bus",
    "Catalog",
    "Change",
    "Chunks",
    "CompletionPost",
    "CompletionPre",
    "ConfigError",
    "Context",
    "ContextLeak",
    "ContextOptions",
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
    "Host",
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
    "Permissions",
    "Progress",
    "ProviderError",
    "ReasoningDelta",
    "Redactor",
    "RegistrationLimits",
    "Reliability",
    "RetryCall",
    "Risk",
    "RunCancelled",
    "RunOptions",
    "RunResult",
    "Scripted",
    "Session",
    "SessionEnd",
    "SessionNotFound",
    "SessionStart",
    "SideEffect",
    "Storage",
    "SubAgent",
    "SubAgents",
    "Telemetry",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCalling",
    "ToolDefinitionError",
    "ToolFailed",
    "ToolPost",
    "ToolPre",
    "ToolResult",
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
