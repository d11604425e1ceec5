"""Probe whether a model calls tools, where neither its server nor its name says so.

The model is asked, once, to call a tool that does nothing. This costs one small request. The result
is kept per model client and serves all its conversations.
"""

from __future__ import annotations

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


async def probe_tools(client: ModelClient, options: ModelOptions) -> bool:
    """Return whether the model calls a tool that is sent in the tools field.

    Raises:
        ProviderError: If the request failed for another reason. Nothing is kept then, so the next
            call asks again.
    """
    if client in _probed_clients:
        return _probed_clients[client]
    exchange = client.open("", (_TOOL,), replace(options, provider_tools=(), tool_search=""))
    try:
        answer = await exchange.ask([UserMessage(_QUESTION)])
        calls_tools = bool(answer.calls)
    except ProviderError as error:
        if not is_refusal_of_tools(error):
            raise
        calls_tools = False
    _probed_clients[client] = calls_tools
    return calls_tools


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
