"""Tools that a provider runs itself: web search, code execution, remote MCP servers.

They are named in `ModelOptions.provider_tools` in the provider's own words and passed on as they
are. What the provider did with them is recorded (`ModelAnswered.provider_calls`) and never
dispatched here: neither the gate nor the sandbox sees such a call, and what it reads or sends
leaves through the provider. A tool of Ferrule's own is what to use where each call must be judged.

One thing is asked of us: whether a remote MCP server may be called (`require_approval`). That
question becomes a call of the tool `mcp_approval`, so it meets the gate, the person and the journal
like any other; where there is no such tool the answer is no.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ferrule.core.calls import Call, compact
from ferrule.core.errors import ConfigError
from ferrule.core.events import ProviderToolCall

from .request_encoding import dumps

APPROVAL = "mcp_approval"
"""The tool whose call asks whether a remote MCP server may be called, and whose success is a yes.
"""

METADATA = 4096
"""Characters of what a provider says of a hosted call that are kept in its record; `raw` keeps all
of it.
"""

_SHORT = 512

_KINDS = (
    ("mcp", "mcp"),
    ("tool_search", "tool_search"),
    ("web_search", "search"),
    ("web_fetch", "fetch"),
    ("file_search", "search"),
    ("code", "execute"),
    ("bash", "execute"),
    ("shell", "execute"),
    ("program", "execute"),
    ("text_editor", "edit"),
    ("image_generation", "image"),
    ("advisor", "think"),
)

_CLIENT_SIDE = (
    "function",
    "custom",
    "computer",
    "local_shell",
    "apply_patch",
    "bash_",
    "text_editor_",
    "memory_",
)
"""How the types begin that a provider only describes, and that the caller must carry out."""


def kind(name: str) -> str:
    """What a hosted tool does, in one word; `other` if its name does not say."""
    return next((word for part, word in _KINDS if part in name), "other")


def provider_call(fields: Mapping[str, Any], name: str, status: str) -> ProviderToolCall:
    """The record of a hosted call: `fields` are the provider's item or block."""
    id, type_ = str(fields.get("id") or ""), str(fields.get("type") or "")
    call_id = str(fields.get("call_id") or fields.get("tool_use_id") or id)
    return ProviderToolCall(
        id, call_id, type_, kind(f"{type_} {name}"), name, status, metadata(fields)
    )


def metadata(fields: Mapping[str, Any]) -> str:
    """The fields as JSON, long texts (pictures, encrypted pages) left out, bounded as a whole."""
    told = compact(_shortened(fields))
    return told if len(told) <= METADATA else compact({"left_out": f"{len(told)} characters"})


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _SHORT else f"[{len(value)} characters]"
    if isinstance(value, Mapping):
        return {name: _shortened(item) for name, item in cast("Mapping[str, Any]", value).items()}
    return (
        [_shortened(item) for item in cast(list[Any], value)] if isinstance(value, list) else value
    )


def tools_json(tools: Sequence[Mapping[str, Any]], *, native: Sequence[str] = ()) -> list[bytes]:
    """Hosted tools as they are sent. Raises ConfigError for one that the provider would not run
    itself.

    `native` are further types that a wire lets through.
    """
    for tool in tools:
        type_ = tool.get("type")
        if not isinstance(type_, str) or not type_:
            raise ConfigError(
                f"a provider tool has no type: {compact(dict(tool))}",
                code="provider_tools",
                hint='{"type": …}',
            )
        if type_ not in native and type_.startswith(_CLIENT_SIDE):
            raise ConfigError(
                (
                    f"`{type_}` is no hosted tool: the provider only describes it and the caller "
                    "carries it out"
                ),
                code="provider_tools",
                hint="use a tool of Ferrule's: `run_command`, `edit_file`",
            )
        if type_ == "mcp":
            _check_remote(tool)
    return [dumps(tool) for tool in tools]


def asks_approval(tools: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the provider asks before it calls a remote MCP server: it does unless it is told
    `never`.
    """
    return any(
        tool.get("type") == "mcp" and tool.get("require_approval") != "never" for tool in tools
    )


def _check_remote(tool: Mapping[str, Any]) -> None:
    """A remote MCP server, as the Responses API describes it (`mcp`): it may call whatever is not
    said clearly.
    """
    label, places = tool.get("server_label"), [tool.get("server_url"), tool.get("connector_id")]
    said = f"the provider tool `mcp` {label!r:.60}"
    if not isinstance(label, str) or not label.strip():
        raise ConfigError(f"{said}: `server_label` must be text", code="provider_tools")
    if sum(isinstance(place, str) and bool(place) for place in places) != 1:
        raise ConfigError(f"{said} needs a `server_url` or a `connector_id`", code="provider_tools")
    asks = tool.get("require_approval", "always")
    if isinstance(asks, Mapping):
        parts = cast("Mapping[str, Any]", asks)
        good = bool(parts) and all(
            name in ("always", "never") and _names_tools(part) for name, part in parts.items()
        )
    else:
        good = asks in ("always", "never")
    if not good:
        raise ConfigError(
            f"{said}: `require_approval` = {asks!r:.80}",
            code="provider_tools",
            hint='`always`, `never`, or {"never": {"tool_names": ["search"]}}',
        )


def _names_tools(part: object) -> bool:
    if not isinstance(part, Mapping) or not part:
        return False
    names: object = cast("Mapping[str, Any]", part).get("tool_names", [])
    return isinstance(names, list) and all(
        isinstance(name, str) for name in cast("list[object]", names)
    )


def no_hosted_tools(tools: Sequence[Mapping[str, Any]], model: str) -> None:
    """Raises ConfigError if there are any: for wires without hosted tools."""
    if tools:
        raise ConfigError(
            f"`{model}` cannot be given provider tools: its API has none",
            code="provider_tools",
            hint="`openai-responses:` and `anthropic:` have",
        )


def approval_call(item: Mapping[str, Any]) -> Call:
    """`mcp_approval_request` as a call of `mcp_approval`. Its id is the one that the answer must
    name.
    """
    given: Any = item.get("arguments")
    try:
        arguments: Any = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        arguments = given
    asked: dict[str, Any] = {
        "server": str(item.get("server_label") or ""),
        "tool": str(item.get("name") or ""),
        "arguments": arguments if isinstance(arguments, dict) else {"as_text": str(arguments)},
    }
    return Call(str(item.get("id") or ""), APPROVAL, compact(asked))
