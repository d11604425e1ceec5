"""Model clients: one package per provider behind one protocol (`client.ModelClient`).

Tool modes and dialects are here too. Nothing in this package knows how a tool is carried out.

Packages: one per provider (`registry` names them), `dialects`, `http`, `tool_modes`.
Modules: `answer_building`, `answer_fields`, `capabilities`, `client`, `hosted_tools`, `key_check`,
`media_encoding`, `media_uploads`, `output_modes`, `prices`, `provider_errors`, `raw_content_check`,
`refused_options`, `registry`, `replayed_content`, `request_encoding`, `scripted`, `server_client`,
`untrusted_text`, `verbatim_json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage

    from .anthropic.client import Anthropic
    from .bedrock.client import Bedrock
    from .client import Capabilities, Exchange, ModelClient, Sink, ToolSpec
    from .google.client import Google, GoogleExchange
    from .ollama.client import Ollama
    from .openai.chat import OpenAIChat
    from .openai.differences import ChatDifferences
    from .openai.responses import OpenAIResponses, ResponsesExchange
    from .prices import PRICES_FILE as PRICES_FILE
    from .prices import Price
    from .prices import find_price as find_price
    from .scripted import Scripted

__all__ = [
    "Anthropic",
    "AssistantMessage",
    "Bedrock",
    "Capabilities",
    "ChatDifferences",
    "Exchange",
    "Google",
    "GoogleExchange",
    "ModelClient",
    "Ollama",
    "OpenAIChat",
    "OpenAIResponses",
    "Price",
    "ResponsesExchange",
    "Scripted",
    "Sink",
    "ToolMessage",
    "ToolSpec",
    "UserMessage",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ferrule.core.messages": ("AssistantMessage", "ToolMessage", "UserMessage"),
        ".bedrock.client": ("Bedrock",),
        ".anthropic.client": ("Anthropic",),
        ".client": (
            "Capabilities",
            "Exchange",
            "ModelClient",
            "Sink",
            "ToolSpec",
        ),
        ".google.client": (
            "GoogleExchange",
            "Google",
        ),
        ".ollama.client": ("Ollama",),
        ".openai.chat": ("OpenAIChat",),
        ".openai.differences": ("ChatDifferences",),
        ".openai.responses": (
            "ResponsesExchange",
            "OpenAIResponses",
        ),
        ".prices": ("PRICES_FILE", "Price", "find_price"),
        ".scripted": ("Scripted",),
    },
)
