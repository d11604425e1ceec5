"""Ferrule binds language models to tools.

    from ferrule import Agent, tool

Names are loaded when they are first used: importing the package loads no provider, web, MCP or
terminal library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._version import __version__
from .core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .core.calls import ErrorType, ToolCall, ToolResult
    from .core.errors import (
        ConfigError,
        ContextLeak,
        FerruleError,
        JournalError,
        LimitReached,
        OutputInvalid,
        ProviderError,
        RetryCall,
        RunCancelled,
        SessionNotFound,
        ToolDefinitionError,
        ToolFailed,
    )
    from .core.identity import Identity
    from .core.limits import Limits
    from .core.media import Audio, Document, Image
    from .engine.agent import Agent
    from .engine.agent_options import Host, Permissions, Storage, ToolCalling
    from .engine.batches import BatchItem, BatchProgress, BatchReport, Budget, run_batch
    from .engine.context.options import ContextOptions
    from .engine.delegation.delegate_tool import ask_agent
    from .engine.delegation.sub_agent import DelegationLimits, SubAgent
    from .engine.event_bus.bus import Bus
    from .engine.hooks.call_hooks import HookBlocked
    from .engine.hooks.stepping import CallStep, ModelStep
    from .engine.live_events import (
        ArgumentsDelta,
        PartialOutput,
        Progress,
        ReasoningDelta,
        TextDelta,
    )
    from .engine.message_history import MessageHistory
    from .engine.model_fallbacks import ModelFallbacks
    from .engine.registration.registration import RegistrationLimits
    from .engine.session import (
        RunOptions,
        RunResult,
        Session,
        SessionApprovals,
        SessionHistory,
    )
    from .engine.telemetry.telemetry import Telemetry
    from .models.anthropic.client import Anthropic
    from .models.client import ModelOptions
    from .models.google.client import Google
    from .models.ollama.client import Ollama
    from .models.openai.chat import OpenAIChat
    from .models.openai.responses import OpenAIResponses
    from .models.prices import PricePerMillion
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

__all__ = [
    "COMMAND",
    "READS",
    "URL",
    "WRITES",
    "Agent",
    "Anthropic",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "ArgumentsDelta",
    "Audio",
    "BatchItem",
    "BatchProgress",
    "BatchReport",
    "Budget",
    "Bus",
    "CallStep",
    "Catalog",
    "Chunks",
    "ConfigError",
    "Context",
    "ContextLeak",
    "ContextOptions",
    "DelegationLimits",
    "Document",
    "ErrorType",
    "FerruleError",
    "Google",
    "HookBlocked",
    "Host",
    "Identity",
    "Image",
    "JournalError",
    "LimitReached",
    "Limits",
    "MessageHistory",
    "ModelFallbacks",
    "ModelOptions",
    "ModelStep",
    "Ollama",
    "OpenAIChat",
    "OpenAIResponses",
    "OutputInvalid",
    "PartialOutput",
    "Permissions",
    "PricePerMillion",
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
    "SessionApprovals",
    "SessionHistory",
    "SessionNotFound",
    "SideEffect",
    "Storage",
    "SubAgent",
    "Telemetry",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCalling",
    "ToolDefinitionError",
    "ToolFailed",
    "ToolResult",
    "ToolSearch",
    "Workspace",
    "__version__",
    "ask_agent",
    "define_tool",
    "run_batch",
    "tool",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".core.calls": (
            "ErrorType",
            "ToolCall",
            "ToolResult",
        ),
        ".core.errors": (
            "ConfigError",
            "ContextLeak",
            "FerruleError",
            "JournalError",
            "LimitReached",
            "OutputInvalid",
            "ProviderError",
            "RetryCall",
            "RunCancelled",
            "SessionNotFound",
            "ToolDefinitionError",
            "ToolFailed",
        ),
        ".core.identity": ("Identity",),
        ".core.limits": ("Limits",),
        ".engine.agent": ("Agent",),
        ".engine.batches": ("BatchItem", "BatchProgress", "BatchReport", "Budget", "run_batch"),
        ".engine.agent_options": (
            "Host",
            "Permissions",
            "Storage",
            "ToolCalling",
        ),
        ".engine.context.options": ("ContextOptions",),
        ".engine.delegation.sub_agent": (
            "DelegationLimits",
            "SubAgent",
        ),
        ".engine.delegation.delegate_tool": ("ask_agent",),
        ".engine.event_bus.bus": ("Bus",),
        ".engine.hooks.call_hooks": ("HookBlocked",),
        ".engine.live_events": (
            "ArgumentsDelta",
            "PartialOutput",
            "Progress",
            "ReasoningDelta",
            "TextDelta",
        ),
        ".engine.message_history": ("MessageHistory",),
        ".engine.model_fallbacks": ("ModelFallbacks",),
        ".engine.registration.registration": ("RegistrationLimits",),
        ".engine.session": (
            "RunOptions",
            "RunResult",
            "Session",
            "SessionApprovals",
            "SessionHistory",
        ),
        ".engine.hooks.stepping": ("CallStep", "ModelStep"),
        ".engine.telemetry.telemetry": ("Telemetry",),
        ".models.anthropic.client": ("Anthropic",),
        ".models.client": ("ModelOptions",),
        ".models.google.client": ("Google",),
        ".models.ollama.client": ("Ollama",),
        ".models.prices": ("PricePerMillion",),
        ".models.openai.chat": ("OpenAIChat",),
        ".models.openai.responses": ("OpenAIResponses",),
        ".models.scripted": ("Scripted",),
        ".permissions.approvals": (
            "ApprovalAnswer",
            "ApprovalRequest",
            "Approver",
        ),
        ".permissions.filesystem.workspace": ("Workspace",),
        ".permissions.redaction": ("Redactor",),
        ".tools.catalog": ("Catalog",),
        ".tools.chunked_output": ("Chunks",),
        ".tools.context": ("Context",),
        ".tools.decorator": ("tool",),
        ".tools.define": ("define_tool",),
        ".tools.definition": (
            "COMMAND",
            "READS",
            "URL",
            "WRITES",
            "Risk",
            "SideEffect",
            "Tool",
        ),
        ".core.media": ("Audio", "Document", "Image"),
        ".tools.reliability": ("Reliability",),
        ".tools.search.options": ("ToolSearch",),
    },
)
