"""Probe whether a model calls tools, where neither its server nor its name says so.

The model is asked, once, to call a tool that does nothing. This costs one small request. The result
is kept per model client and serves all its conversations, also those that run at the same time. A
call that the model makes in one of them answers the question without a request.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from weakref import WeakKeyDictionary

from ferrule.core.errors import ProviderError
from ferrule.core.messages import UserMessage
from ferrule.models.client import Capabilities, ModelClient, ModelOptions, ToolSpec

SOURCE = "live probe"

_TOOL = ToolSpec(
    "report_ready",
    "report_ready",
    "Report that you are ready. It does nothing else.",
    '{"type":"object","properties":{"ready":{"type":"boolean"}},"required":["ready"]}',
)
_QUESTION = "Call the tool `report_ready` with ready = true now. Write nothing else."

_probed_clients: WeakKeyDictionary[ModelClient, bool] = WeakKeyDictionary()
# A client may serve several event loops, and a lock belongs to one.
_probing: WeakKeyDictionary[ModelClient, WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]]
_probing = WeakKeyDictionary()


def note_native_call(client: ModelClient) -> None:
    """Remember that a model called a tool of the tools field, whatever a probe found before."""
    _probed_clients[client] = True


async def probe_tools(client: ModelClient, options: ModelOptions) -> bool:
    """Return whether the model calls a tool that is sent in the tools field.

    Raises:
        ProviderError: If the request failed for another reason. Nothing is kept then, so the next
            call asks again.
    """
    if client in _probed_clients:
        return _probed_clients[client]
    locks = _probing.setdefault(client, WeakKeyDictionary())
    async with locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if client not in _probed_clients:
            _probed_clients[client] = await _ask_for_call(client, options)
        return _probed_clients[client]


async def _ask_for_call(client: ModelClient, options: ModelOptions) -> bool:
    """Ask the model to call a tool, and return whether it does."""
    exchange = client.open("", (_TOOL,), replace(options, provider_tools=(), tool_search=""))
    try:
        answer = await exchange.ask([UserMessage(_QUESTION)])
    except ProviderError as error:
        if not is_refusal_of_tools(error):
            raise
        return False
    return bool(answer.calls)


async def probe_capabilities(client: ModelClient) -> Capabilities:
    """Return the model's capabilities, and probe for tools where its server does not say.

    Raises:
        ProviderError: If the server could not be asked.
    """
    found = await client.capabilities()
    if found.tools is not None:
        return found
    return replace(found, tools=await probe_tools(client, ModelOptions()), source=SOURCE)


def is_refusal_of_tools(error: ProviderError) -> bool:
    """Return whether a server refused a request because of the tools in it.

    For servers that are not known to take tools: their errors are judged by status and wording.
    """
    if error.code == "tools_unsupported":
        return True
    bad_request = error.code in ("http_400", "http_422", "http_501", "choice_unsupported")
    words = error.detail.lower()
    return bad_request and ("tool" in words or "function" in words)
