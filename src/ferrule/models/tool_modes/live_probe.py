"""Finding out whether tools work where nobody says: the model is asked, once, to call a tool that
does nothing.

It costs one small request. What came of it is kept with the model client, for all its
conversations.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from ferrule.core.errors import ProviderError
from ferrule.core.messages import UserMessage
from ferrule.models.client import Capabilities, ModelOptions, ToolSpec, Wire

SOURCE = "live probe"

_TOOL = ToolSpec(
    "report_ready",
    "report_ready",
    "Report that you are ready. It does nothing else.",
    '{"type":"object","properties":{"ready":{"type":"boolean"}},"required":["ready"]}',
)
_QUESTION = "Call the tool `report_ready` with ready = true now. Write nothing else."

_known: WeakKeyDictionary[Wire, bool] = WeakKeyDictionary()


async def probe_tools(wire: Wire, options: ModelOptions) -> bool:
    """Return whether the model calls a tool that is sent in the tools field.

    Raises ProviderError if the question could not be answered; then it is asked again the next
    time.
    """
    if wire in _known:
        return _known[wire]
    exchange = wire.open("", (_TOOL,), replace(options, provider_tools=(), tool_search=""))
    try:
        answer = await exchange.ask([UserMessage(_QUESTION)])
        able = bool(answer.calls)
    except ProviderError as error:
        if not refuses_tools(error):
            raise
        able = False
    _known[wire] = able
    return able


async def probed(wire: Wire) -> Capabilities:
    """The model's capabilities, with the tools probed where its server does not say. Raises
    ProviderError.
    """
    found = await wire.capabilities()
    if found.tools is not None:
        return found
    return replace(found, tools=await probe_tools(wire, ModelOptions()), source=SOURCE)


def refuses_tools(error: ProviderError) -> bool:
    """Whether a server that was not known to take tools refused a request because of them."""
    if error.code == "tools_unsupported":
        return True
    bad_request = error.code in ("http_400", "http_422", "http_501", "choice_unsupported")
    words = error.detail.lower()
    return bad_request and ("tool" in words or "function" in words)
