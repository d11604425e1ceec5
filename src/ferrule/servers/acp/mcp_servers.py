"""Servers that the editor hands over with a session (`mcpServers`), as entries in the shape of
`.mcp.json`.

The editor is the person's own program, but what it hands over may come from a project's settings,
and starting a command is the person's decision: so these servers go through the same book of
approvals as all others (`runtime.mcp_servers`). Nothing is started here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ConfigError

MOST = 64
"""Servers of a session."""


def entries_of(given: object) -> dict[str, dict[str, Any]]:
    """By name. Raises ConfigError for what is no list of servers."""
    if given is None:
        return {}
    if not isinstance(given, list) or len(cast("list[object]", given)) > MOST:
        raise ConfigError(f"`mcpServers` must be a list of at most {MOST} servers")
    found: dict[str, dict[str, Any]] = {}
    for one in cast("list[object]", given):
        if not isinstance(one, dict):
            raise ConfigError("`mcpServers` must be a list of objects")
        fields = cast("dict[str, Any]", one)
        name = fields.get("name")
        if not isinstance(name, str) or not name or name in found:
            raise ConfigError("each of `mcpServers` needs a name of its own")
        found[name] = _entry(fields)
    return found


def _entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    kind = fields.get("type")
    if kind in ("http", "sse"):
        return {"type": kind, "url": fields.get("url"), "headers": _pairs(fields.get("headers"))}
    if kind not in (None, "stdio"):
        raise ConfigError(f"a server of the type {str(kind)[:40]!r} cannot be reached from here")
    entry: dict[str, Any] = {"command": fields.get("command"), "args": fields.get("args") or []}
    return {**entry, "env": _pairs(fields.get("env"))}


def _pairs(given: object) -> dict[str, str]:
    """`[{"name": …, "value": …}]` as a mapping. A `$` in a value of the editor's is a dollar, no
    variable of ours.
    """
    if given is None:
        return {}
    if not isinstance(given, list):
        raise ConfigError("`env` and `headers` must be lists of names and values")
    found: dict[str, str] = {}
    for one in cast("list[object]", given):
        pair = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        name, value = pair.get("name"), pair.get("value")
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError("`env` and `headers` must be lists of names and values")
        if "${" in value:
            raise ConfigError(
                f"the value of `{name[:60]}` holds `${{`, which would be read as a variable"
            )
        found[name] = value
    return found
