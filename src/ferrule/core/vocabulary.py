"""The closed vocabularies of a session: the words that fields of events may have.

Each is defined here once. `core.events` decodes a field by its vocabulary: a word that is not in it
makes the event `Unknown`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class SideEffect(StrEnum):
    """What a tool does to the world. `UNDECLARED` is never retried."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    EXTERNAL = "external"
    UNDECLARED = "undeclared"


class Risk(StrEnum):
    """How much a call needs a person's attention.

    `SAFE` runs without approval, `LOW` asks once a session, `MEDIUM` and `HIGH` ask (`HIGH` with a
    preview), `CRITICAL` asks every time.
    """

    SAFE = "safe"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


PermissionMode = Literal[
    "default", "acceptEdits", "sandboxed", "plan", "auto", "dontAsk", "bypassPermissions"
]
"""What a session asks about (`permissions.rule_evaluation`)."""

RuleLayer = Literal["managed", "flags", "local", "project", "user", "session", "builtin"]
"""Where a permission rule comes from."""

GateVerdict = Literal["allow", "ask", "deny"]
"""What the gate says of a call."""

CallVerdict = Literal["allow", "ask", "refuse"]
"""What an evaluated call may do. A call is refused by the gate, or because it makes no sense."""

Refuser = Literal[
    "rule", "mode", "gate", "person", "nobody", "error", "hook", "sandbox", "tool", "limit"
]
"""Who refused a call, in the order in which they check it.

`gate`: a built-in refusal; `nobody`: no person was there to ask; `error`: asking failed; `tool`:
the tool's own check while it worked; `limit`: the run had reached a limit.
"""

ApprovalChoice = Literal["once", "session", "remember", "mode", "deny"]
"""A person's answer to an approval request. `mode`: yes, and the session changes its mode."""

HookVerdict = Literal["block", "change", "answer", "result"]
"""What a hook did to a call (`events.CallHooked`)."""

ResultForm = Literal["value", "envelope"]
"""What a model sees of a result that succeeded: its value, or the whole result object."""

ToolMode = Literal["native", "constrained", "text", "commands"]
"""How a model is told of tools and calls them, best first (`models.tool_modes`)."""

AnswerStop = Literal["end", "calls", "length", "filter"]
"""Why an answer of a model ended: it was done, it calls tools, it was cut, it was withheld."""

RunStop = Literal["done", "limit", "cancelled", "failed"]
"""How a run ended."""

OwnerLimitName = Literal["user_tokens", "user_cost", "tenant_tokens", "tenant_cost"]
"""The limits of all runs of a user or a tenant (`limits.Limits`)."""

LimitName = (
    Literal["max_turns", "max_seconds", "max_tokens", "max_cost", "max_calls"] | OwnerLimitName
)
"""The limits that can end a run (`limits.Limits`)."""

ProviderToolKind = Literal[
    "search", "fetch", "execute", "edit", "image", "think", "mcp", "tool_search", "other"
]
"""What a tool does that a provider runs itself."""

CompactionKind = Literal["elided", "summary"]
"""What replaced the older parts of a history: stubs for results, or also a summary."""

CompactionReason = Literal["window", "overflow", "person"]
"""Why a history was compacted (`events.ContextCompacted`)."""

SearchSide = Literal["native", "client"]
"""Who searched for deferred tools: the provider, or Ferrule."""
