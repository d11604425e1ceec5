"""Messages: the history that a model reads. Values that are only appended, never changed.

Every model client encodes each message once. System text is not a message here: it belongs to the
session and never changes within it, so that a provider's prefix cache stays valid (see
`engine.agent_parts`).
"""

from __future__ import annotations

from .calls import ToolCall
from .value_class import frozen


@frozen
class UserMessage:
    """A person's message, or context that a person added (`/read`, piped standard input)."""

    text: str


@frozen
class AssistantMessage:
    """A model's answer.

    `raw` keeps the provider's own blocks (JSON text) if they must be replayed byte for byte.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    raw: str | None = None


@frozen
class ToolMessage:
    """The text of one result. Always follows the assistant message that made the call."""

    call_id: str
    tool: str
    text: str
    success: bool = True


Message = UserMessage | AssistantMessage | ToolMessage
