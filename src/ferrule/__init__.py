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
    from .engine.hooks import Block, Change, Hook
    from .engine.live import Progress, ReasoningDelta, TextDelta
    from .engine.session import RunResult, Session
    from .guard.workspace import Workspace
    from .models.ollama import Ollama
    from .models.openai_chat import OpenAIChat
    from .models.scripted import Scripted
    from .models.wire import ModelOptions
    from .tools.catalog import Catalog
    from .tools.context import Context
    from .tools.decorator import tool
    from .tools.define import define_tool
    from .tools.definition import COMMAND, READS, URL, WRITES, Risk, SideEffect, Tool
    from .tools.reliability import Reliability

_WHERE = {
    "core.calls": ("Call", "ErrorType", "Result"),
    "core.errors": (
        "ConfigError",
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
    "engine.hooks": ("Block", "Change", "Hook"),
    "engine.live": ("Progress", "ReasoningDelta", "TextDelta"),
    "engine.session": ("RunResult", "Session"),
    "guard.workspace": ("Workspace",),
    "models.ollama": ("Ollama",),
    "models.openai_chat": ("OpenAIChat",),
    "models.scripted": ("Scripted",),
    "models.wire": ("ModelOptions",),
    "tools.catalog": ("Catalog",),
    "tools.context": ("Context",),
    "tools.decorator": ("tool",),
    "tools.define": ("define_tool",),
    "tools.definition": ("COMMAND", "READS", "URL", "WRITES", "Risk", "SideEffect", "Tool"),
    "tools.reliability": ("Reliability",),
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]  (loaded by __getattr__)
    "COMMAND",
    "READS",
    "URL",
    "WRITES",
    "Agent",
    "Block",
    "Call",
    "Catalog",
    "Change",
    "ConfigError",
    "Context",
    "ErrorType",
    "FerruleError",
    "Hook",
    "Identity",
    "JournalError",
    "LimitReached",
    "Limits",
    "ModelOptions",
    "Ollama",
    "OpenAIChat",
    "Progress",
    "ProviderError",
    "ReasoningDelta",
    "Reliability",
    "Result",
    "RetryCall",
    "Risk",
    "RunCancelled",
    "RunResult",
    "Scripted",
    "Session",
    "SessionNotFound",
    "SideEffect",
    "TextDelta",
    "Tool",
    "ToolDefinitionError",
    "ToolFailed",
    "Workspace",
    "__version__",
    "define_tool",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'ferrule' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"ferrule.{_MODULE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
