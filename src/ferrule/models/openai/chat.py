"""The chat-completions client: OpenAI, and every server that speaks its format.

Source: the OpenAI API reference (`POST /chat/completions`, streaming as server-sent events) and
what llama.cpp, vLLM, LM Studio, OpenRouter and others make of it. `chat_answers` and
`provider_errors` describe the differences.

This module is what creating a client needs. What its conversations need (`chat_exchange`) is
imported with the first of them, to start fast.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ferrule.core.errors import ProviderError
from ferrule.core.media import MediaReference
from ferrule.models.client import Capabilities, ModelOptions, ToolSpec
from ferrule.models.hosted_tools import refuse_hosted_tools
from ferrule.models.http.transport import Transport
from ferrule.models.registry import check_options
from ferrule.models.server_client import ServerClient, find_key

from .chat_exchange import (
    ChatExchange,
    EncodedTools,
    list_models,
    read_capabilities,
)
from .differences import ChatDifferences

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIChat(ServerClient):
    """A model behind a chat-completions server.

    Args:
        model: The model's name at the server.
        base_url: Everything before `/chat/completions`; defaults to OPENAI_BASE_URL.
        api_key: Defaults to OPENAI_API_KEY. It is read here, not later, and sent only to
            `base_url`.
        transport: Its owner closes it. Without one, the client makes and closes its own.
        name: The provider's name in front of the model's.
        headers: Further headers of every request.
        replay_reasoning: Send `reasoning_content` back with answers that made calls, for servers
            that require it.
        differences: How the server differs from others that speak this format.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        transport: Transport | None = None,
        name: str = "openai",
        headers: Mapping[str, str] | None = None,
        replay_reasoning: bool = False,
        differences: ChatDifferences | None = None,
    ) -> None:
        base = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        self.base_url = base.rstrip("/")
        self.differences = differences or ChatDifferences()
        at_openai = self.base_url.startswith("https://api.openai.com/")
        self.is_openai = at_openai or self.differences.like_openai
        self.model_id = model
        self._provider = name
        key = find_key(api_key, ("OPENAI_API_KEY",), self.model, required=at_openai)
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        if key and self.differences.key_header:
            self.headers[self.differences.key_header] = key
        elif key:
            self.headers["Authorization"] = f"Bearer {key}"
        super().__init__(transport)
        self.replay_reasoning = replay_reasoning
        self._capabilities: Capabilities | None = None
        self._tools: EncodedTools | None = None

    @property
    def model(self) -> str:
        return f"{self._provider}:{self.model_id}"

    async def capabilities(self) -> Capabilities:
        """Return what the model can do, else unknown.

        A table of providers is consulted first, then llama.cpp's `/props`, then the server's list
        of models.
        """
        if self._capabilities is None:
            self._capabilities = await read_capabilities(self)
        return self._capabilities

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> ChatExchange:
        check_options(self.model, options)
        if options.provider_tools:
            refuse_hosted_tools(options.provider_tools, self.model)
        encoded = self._tools
        if encoded is None or encoded.tools is not tools:
            encoded = EncodedTools(tools)
            # Only a tuple is remembered: a list could be changed later.
            self._tools = encoded if isinstance(tools, tuple) else None
        return ChatExchange(self, system, encoded, options)

    async def upload_file(self, one: MediaReference, data: bytes) -> str:
        """Upload a medium to the Files API and return its id. Raises ProviderError.

        Source: `POST /files` of OpenAI's API reference. Chat completions name documents alone.
        """
        from ferrule.models.media_uploads import FILE_SECONDS, upload_form

        fields = {
            "purpose": "vision" if one.media_kind == "image" else "user_data",
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": str(FILE_SECONDS),
        }
        url = f"{self.base_url}/files"
        return await upload_form(self, url, one, data, fields, self.headers, accepted=(200, 201))

    async def list_models(self) -> list[dict[str, Any]]:
        """Return the entries of `GET /models`; empty if the server has no such list."""
        return await list_models(self)


async def find_models(base_url: str = "") -> list[str]:
    """Return the names of the models that a server lists.

    Raises:
        ProviderError: It lists none, or cannot be reached.
    """
    client = OpenAIChat("any", base_url=base_url)
    try:
        entries = await client.list_models()
    finally:
        await client.close()
    names = [str(entry.get("id", "")) for entry in entries]
    if not any(names):
        raise ProviderError(f"no models at {client.base_url}", code="model_not_found")
    return [name for name in names if name]
