"""What telemetry remembers of open sessions, and how values of events become attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ferrule.core import events
from ferrule.core.calls import ToolCall, ToolResult, encode_json
from ferrule.engine.event_bus.events import SessionKey

from .names import FINISH_REASONS, Attribute

if TYPE_CHECKING:
    from opentelemetry.trace import Span
else:
    Span = Any


@dataclass(slots=True)
class OpenCall:
    """A call that has begun, and its span."""

    call: ToolCall
    direct: str = ""
    since: float = 0.0
    announced: bool = False
    span: Span | None = None


@dataclass(slots=True)
class OpenSession:
    """What is known of a session that has begun, and the spans that are open in it."""

    key: SessionKey
    provider: str = "unknown"
    model: str = ""
    model_name: str = ""
    """The model's full name, with its provider's as the settings have it."""
    agent: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What the model has read so far, if content is captured."""
    above: tuple[SessionKey, str] | None = None
    """The session and the call that this one works for."""
    system: str = ""
    tools: tuple[str, ...] = ()
    run: Span | None = None
    began: float = 0.0
    since: float = 0.0
    """When the event happened that the next request answers."""
    first_piece: float = 0.0
    calls: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])


def nanoseconds(time: float) -> int:
    """Convert seconds since 1970 to OpenTelemetry's unit."""
    return int(time * 1e9)


def with_error(about: dict[str, Any], error: str) -> dict[str, Any]:
    """Return attributes, with the type of an error if there is one."""
    return {**about, Attribute.ERROR: error} if error else about


def tokens(used: events.Usage) -> dict[str, Callable[[], object]]:
    """Return the numbers of tokens used as attributes; zeros are left out."""
    counts = {
        Attribute.INPUT_TOKENS: used.input,
        Attribute.OUTPUT_TOKENS: used.output,
        Attribute.CACHE_READ: used.cached,
        Attribute.CACHE_CREATION: used.written,
        Attribute.REASONING: used.reasoning,
    }
    return {name: (lambda count=count: count) for name, count in counts.items() if count}


MOST_MESSAGES = 200
"""The latest messages that a question's span has; older ones are left out."""


def messages(role: str, text: str) -> str:
    """Return a message in the form of the conventions, as JSON."""
    return encode_json([make_message(role, text)])


def make_message(role: str, text: str) -> dict[str, Any]:
    """Return a message of text in the form of the conventions."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def make_result_message(result: ToolResult) -> dict[str, Any]:
    """Return a call's result in the form of the conventions."""
    part = {"type": "tool_call_response", "id": result.call_id, "response": result.to_text()}
    return {"role": "tool", "parts": [part]}


def make_answer_message(event: events.ModelAnswered) -> dict[str, Any]:
    """Return a model's answer in the form of the conventions, with its calls."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": event.text}] if event.text else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.tool, "arguments": call.arguments}
        for call in event.calls
    ]
    reason = FINISH_REASONS.get(event.stop, event.stop)
    return {"role": "assistant", "parts": parts, "finish_reason": reason}
