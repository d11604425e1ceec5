"""Tools that a provider runs itself: web search, code execution, remote MCP servers.

They are listed in `ModelOptions.provider_tools` in the provider's own format and passed on
unchanged. What the provider did with them is recorded (`ModelAnswered.provider_calls`) and never
dispatched here: neither the permission rules nor the sandbox see such a call, and what it reads or
sends leaves through the provider. Where each call must be judged, use a tool of Ferrule's own.

The provider may ask one thing: whether a remote MCP server may be called (`require_approval`). That
question becomes a call of the tool `mcp_approval`, so it passes the permission rules, the person
and the journal like any other call. Without such a tool the answer is no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ferrule.core.calls import ToolCall, encode_json, parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.events import ProviderToolCall
from ferrule.core.vocabulary import ProviderToolKind

from .registry import list_providers
from .request_encoding import encode_json_bytes

APPROVAL_TOOL = "mcp_approval"
"""The tool whose call asks whether a remote MCP server may be called; its success means yes."""

METADATA_LIMIT = 4096
"""Characters of what a provider says of a hosted call that its record keeps; `raw` keeps all."""

_LONGEST_TEXT = 512
"""Characters of a text that metadata keeps; a longer one is replaced by its length."""

_KINDS: tuple[tuple[str, ProviderToolKind], ...] = (
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
"""Part of a hosted tool's name, and what such a tool does."""

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
"""How the types begin that a provider only describes and the caller must carry out."""


def classify_tool(name: str) -> ProviderToolKind:
    """Return what a hosted tool does, in one word; `other` if its name does not say."""
    for part, what in _KINDS:
        if part in name:
            return what
    return "other"


def record_provider_call(fields: Mapping[str, Any], name: str, status: str) -> ProviderToolCall:
    """Record a hosted call. `fields` are the provider's item or block."""
    id = str(fields.get("id") or "")
    type_ = str(fields.get("type") or "")
    call_id = str(fields.get("call_id") or fields.get("tool_use_id") or id)
    return ProviderToolCall(
        id, call_id, type_, classify_tool(f"{type_} {name}"), name, status, format_metadata(fields)
    )


def format_metadata(fields: Mapping[str, Any]) -> str:
    """Return the fields as JSON of limited length, without long texts such as encrypted pages."""
    text = encode_json(_shorten(fields))
    return (
        text
        if len(text) <= METADATA_LIMIT
        else encode_json({"left_out": f"{len(text)} characters"})
    )


def _shorten(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"[{len(value)} characters]"
    if isinstance(value, Mapping):
        return {name: _shorten(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shorten(item) for item in cast(list[Any], value)]
    return value


def encode_hosted_tools(tools: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Encode hosted tools as they are sent.

    Args:
        tools: Tools in the provider's format.

    Raises:
        ConfigError: A tool has no type, is invalid, or would not be run by the provider.
    """
    for tool in tools:
        type_ = tool.get("type")
        if not isinstance(type_, str) or not type_:
            raise ConfigError(
                f"a provider tool has no type: {encode_json(dict(tool))}",
                code="provider_tools",
                hint='{"type": …}',
            )
        if type_.startswith(_CLIENT_SIDE):
            raise ConfigError(
                f"`{type_}` is not a hosted tool: the provider only describes it and the caller "
                "carries it out",
                code="provider_tools",
                hint="use one of Ferrule's tools: `run_command`, `edit_file`",
            )
        if type_ == "mcp":
            _check_mcp_server(tool)
    return [encode_json_bytes(tool) for tool in tools]


def needs_approval(tools: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the provider asks before it calls a remote MCP server.

    It does unless `require_approval` is `never`.
    """
    return any(
        tool.get("type") == "mcp" and tool.get("require_approval") != "never" for tool in tools
    )


def _check_mcp_server(tool: Mapping[str, Any]) -> None:
    """Check a remote MCP server (`mcp`), as the Responses API describes it.

    Strict, since a server whose approval setting is unclear may call anything.
    """
    label = tool.get("server_label")
    who = f"the provider tool `mcp` {label!r:.60}"
    if not isinstance(label, str) or not label.strip():
        raise ConfigError(f"{who}: `server_label` must be text", code="provider_tools")
    addresses = [tool.get("server_url"), tool.get("connector_id")]
    if sum(isinstance(address, str) and bool(address) for address in addresses) != 1:
        raise ConfigError(f"{who} needs a `server_url` or a `connector_id`", code="provider_tools")
    approval = tool.get("require_approval", "always")
    if not _is_approval_setting(approval):
        raise ConfigError(
            f"{who}: `require_approval` = {approval!r:.80}",
            code="provider_tools",
            hint='write `always`, `never`, or {"never": {"tool_names": ["search"]}}',
        )


def _is_approval_setting(approval: object) -> bool:
    if not isinstance(approval, Mapping):
        return approval in ("always", "never")
    filters = cast("Mapping[str, Any]", approval)
    return bool(filters) and all(
        name in ("always", "never") and _names_tools(tools) for name, tools in filters.items()
    )


def _names_tools(tool_filter: object) -> bool:
    if not isinstance(tool_filter, Mapping) or not tool_filter:
        return False
    names: object = cast("Mapping[str, Any]", tool_filter).get("tool_names", [])
    return isinstance(names, list) and all(
        isinstance(name, str) for name in cast("list[object]", names)
    )


def refuse_hosted_tools(tools: Sequence[Mapping[str, Any]], model: str) -> None:
    """Refuse hosted tools, for clients that have none.

    Raises:
        ConfigError: There are any.
    """
    if tools:
        able = [f"`{name}:`" for name, row in list_providers().items() if row.has_hosted_tools]
        raise ConfigError(
            f"`{model}` cannot be given provider tools: its API has none",
            code="provider_tools",
            hint=f"use a model of {' or '.join(able)}",
        )


def make_approval_call(item: Mapping[str, Any]) -> ToolCall:
    """Turn an `mcp_approval_request` into a call of `mcp_approval`.

    The call's id is the one that the approval response must name.
    """
    given: Any = item.get("arguments")
    try:
        arguments: Any = parse_json(given) if isinstance(given, str) else given
    except ValueError:
        arguments = given
    request: dict[str, Any] = {
        "server": str(item.get("server_label") or ""),
        "tool": str(item.get("name") or ""),
        "arguments": arguments if isinstance(arguments, dict) else {"as_text": str(arguments)},
    }
    return ToolCall(str(item.get("id") or ""), APPROVAL_TOOL, encode_json(request))
