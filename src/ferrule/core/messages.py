"""What a model has said and been told. Append-only values; every wire encodes each one once.

System text is not a message here: it belongs to the session and never changes within it,
so that a provider's prefix cache holds (see `engine.prompt`).
"""

from __future__ import annotations

from .calls import Call
from .frozen import frozen


@frozen
class UserMessage:
    """Words of a person, or context that a person put in (`/read`, piped standard input)."""

    text: str


@frozen
class AssistantMessage:
    """A model's answer. `raw` keeps a provider's own blocks (JSON text) where they must be replayed
    byte for byte.
    """

    text: str
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    raw: str | None = None


@frozen
class ToolMessage:
    """What the model reads of one result. Always follows the assistant message that made the
    call.
    """

    call_id: str
    tool: str
    text: str
    success: bool = True


Message = UserMessage | AssistantMessage | ToolMessage
