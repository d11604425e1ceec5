"""MCP servers that the editor passes with a session (`mcpServers`), as entries of `.mcp.json`.

The editor is the person's own program, but what it passes may come from a project's settings, and
starting a command is the person's decision. So these servers need the same approvals as all others
(`connectors.mcp.plugin`). Nothing is started here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ConfigError

MAX_SERVERS = 64
"""Most servers of a session."""


def parse_servers(given: object) -> dict[str, dict[str, Any]]:
    """Return the entries by name. Raises ConfigError if it is not a list of servers."""
    if given is None:
        return {}
    if not isinstance(given, list) or len(cast("list[object]", given)) > MAX_SERVERS:
        raise ConfigError(f"`mcpServers` must be a list of at most {MAX_SERVERS} servers")
    found: dict[str, dict[str, Any]] = {}
    for one in cast("list[object]", given):
        if not isinstance(one, dict):
            raise ConfigError("`mcpServers` must be a list of objects")
        fields = cast("dict[str, Any]", one)
        name = fields.get("name")
        if not isinstance(name, str) or not name or name in found:
            raise ConfigError("each server in `mcpServers` needs a unique name")
        found[name] = _entry(fields)
    return found


def _entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    kind = fields.get("type")
    if kind in ("http", "sse"):
        return {
            "type": kind,
            "url": fields.get("url"),
            "headers": _parse_pairs(fields.get("headers")),
        }
    if kind not in (None, "stdio"):
        raise ConfigError(f"unsupported type of MCP server: {str(kind)[:40]!r}")
    entry: dict[str, Any] = {"command": fields.get("command"), "args": fields.get("args") or []}
    return {**entry, "env": _parse_pairs(fields.get("env"))}


def _parse_pairs(given: object) -> dict[str, str]:
    """Convert `[{"name": …, "value": …}]` to a mapping.

    A `$` in a value of the editor's is a dollar, not a variable of ours.
    """
    if given is None:
        return {}
    if not isinstance(given, list):
        raise ConfigError("`env` and `headers` must be lists of names and values")
    found: dict[str, str] = {}
    for one in cast("list[object]", given):
        pair = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        name = pair.get("name")
        value = pair.get("value")
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError("`env` and `headers` must be lists of names and values")
        if "${" in value:
            raise ConfigError(
                f"the value of `{name[:60]}` contains `${{`, which would be read as a variable"
            )
        found[name] = value
    return found
