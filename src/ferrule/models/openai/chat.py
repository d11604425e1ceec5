"""The chat-completions wire: OpenAI, and every server that speaks its format.

Source: the OpenAI API reference (`POST /chat/completions`, streaming as server-sent events) and
what llama.cpp, vLLM, LM Studio, OpenRouter and others make of it; `folding` and `failures` hold the
tables.

Here is the wire as it is made; what its conversations need (`chat_exchange`) is loaded with the
first of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError

if TYPE_CHECKING:
    from ferrule.models.client import Capabilities, ModelOptions, ToolSpec
    from ferrule.models.http.transport import Transport

    from .chat_exchange import ChatExchange, Offer

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIChat:
    """A model behind a chat-completions server. `base_url` is everything before
    `/chat/completions`.

    `api_key` and `base_url` default to OPENAI_API_KEY and OPENAI_BASE_URL, read here and not later;
    the key is sent only to `base_url`. A `transport` that is given stays its owner's to close.
    `replay_reasoning` sends `reasoning_content` back with answers that made calls, for servers that
    demand it.
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
    ) -> None:
        base = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        self.base_url = base.rstrip("/")
        self.native = self.base_url.startswith("https://api.openai.com/")
        key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        if self.native and not key:
            raise ConfigError(
                f"`{name}:{model}` needs an API key",
                code="api_key",
                hint="set OPENAI_API_KEY, or `base_url`",
            )
        self.id = model
        self._name = name
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        if key:
            self.headers["Authorization"] = f"Bearer {key.strip()}"
        if transport is None:
            from ferrule.models.http.transport import Transport

            self.transport, self._owns_transport = Transport(), True
        else:
            self.transport, self._owns_transport = transport, False
        self.replay_reasoning = replay_reasoning
        self._capabilities: Capabilities | None = None
        self._offer: Offer | None = None

    @property
    def model(self) -> str:
        return f"{self._name}:{self.id}"

    async def capabilities(self) -> Capabilities:
        """llama.cpp's `/props`, then a table of providers, then the server's list of models; else
        unknown.
        """
        if self._capabilities is None:
            from .chat_exchange import capabilities

            self._capabilities = await capabilities(self)
        return self._capabilities

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> ChatExchange:
        from .chat_exchange import ChatExchange, Offer, no_hosted_tools

        if options.provider_tools:
            no_hosted_tools(options.provider_tools, self.model)
        offer = self._offer
        if offer is None or offer.tools is not tools:
            offer = Offer(tools)
            # A list could change under us.
            self._offer = offer if isinstance(tools, tuple) else None
        return ChatExchange(self, system, offer, options)

    async def close(self) -> None:
        if self._owns_transport:
            await self.transport.close()

    async def models(self) -> list[dict[str, Any]]:
        """The entries of `GET /models`; empty if the server has no such list."""
        from .chat_exchange import models

        return await models(self)
