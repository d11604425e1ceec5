"""Entries of servers as other programs write them, put into the keys that Ferrule knows.

Claude Code and Claude Desktop, Cursor, VS Code, Windsurf, Gemini CLI, Cline and Codex agree on
`command`, `args`, `env`, `url` and `headers`, and differ in the rest. What such a key means is
kept; what only decides who is asked (`alwaysAllow`) is not taken over, and said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, cast

from ferrule.connectors.json_values import mapping_or_empty

_RENAMED = {
    "serverUrl": "url",
    "httpUrl": "url",
    "http_headers": "headers",
    "includeTools": "tools",
    "enabled_tools": "tools",
    "enabledTools": "tools",
    "excludeTools": "without",
    "disabled_tools": "without",
    "disabledTools": "without",
    "transportType": "type",
}
"""Other names of keys."""

_TYPES = {
    "streamableHttp": "http",
    "streamableHTTP": "http",
    "streamable": "http",
    "remote": "http",
    "local": "stdio",
    "command": "stdio",
}
_ABOUT_QUESTIONS = ("alwaysAllow", "autoApprove", "trust", "autoAllow")
_WITHOUT_MEANING = (
    "version",
    "gallery",
    "dev",
    "icon",
    "iconUrl",
    "id",
    "note",
    "_comment",
    "inputs",
    "fromGalleryId",
    "requestOptions",
    "networkTimeout",
    "title",
    "disabledReason",
    "required",
    "supports_parallel_tool_calls",
)
_VARIABLE = re.compile(r"\$\{(?:env:([A-Za-z_]\w*)|input:([\w-]+)|(workspaceFolder)|(userHome))\}")
_MILLISECONDS = 1000
"""A timeout of at least so much is in milliseconds: nobody waits that many seconds."""


def translate_entry(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an entry with Ferrule's own keys, and remarks on what was not taken over.

    Keys that nobody knows stay, for the reader to refuse.
    """
    entry: dict[str, Any] = {}
    remarks: list[str] = []
    for key, value in given.items():
        if key in _ABOUT_QUESTIONS:
            if value:
                remarks.append(
                    f"`{key}` is not taken over: rules say what runs without a question "
                    "(`--allow mcp__SERVER__TOOL`)"
                )
        elif key in _TRANSLATIONS:
            _TRANSLATIONS[key](entry, value)
        elif key not in _WITHOUT_MEANING:
            entry.setdefault(_RENAMED.get(key, key), value)
    for key in ("type", "transport"):
        if isinstance(entry.get(key), str):
            entry[key] = _TYPES.get(entry[key], entry[key])
    if entry.get("url") and "type" not in entry and "transport" not in entry:
        entry["type"] = "http"
    _split_command(entry)
    filled = {key: _translate_variables(value, remarks) for key, value in entry.items()}
    return filled, remarks


def _split_command(entry: dict[str, Any]) -> None:
    """Split a command that was written as one line."""
    command = entry.get("command")
    if isinstance(command, str) and " " in command.strip() and not entry.get("args"):
        try:
            words = shlex.split(command)
        except ValueError:
            return
        entry["command"] = words[0]
        entry["args"] = words[1:]


def _translate_variables(value: Any, remarks: list[str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _name_variable(match, remarks), value)
    if isinstance(value, list):
        return [_translate_variables(one, remarks) for one in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value)
        return {key: _translate_variables(one, remarks) for key, one in pairs.items()}
    return value


def _name_variable(match: re.Match[str], remarks: list[str]) -> str:
    environment, asked, workspace, _ = match.groups()
    if environment:
        return f"${{{environment}}}"
    if workspace:
        return "."
    if asked:
        name = re.sub(r"\W", "_", asked).upper()
        remarks.append(f"it asks for `{asked}`: set the variable {name} instead")
        return f"${{{name}}}"
    return "${HOME}"


def _set_timeout(entry: dict[str, Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        return
    milliseconds = value if value >= _MILLISECONDS else value * 1000
    entry.setdefault("policy", {"timeout_ms": int(milliseconds)})


def _set_start_timeout(entry: dict[str, Any], value: Any) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        seconds = value / 1000 if value >= _MILLISECONDS else value
        entry["connect_timeout"] = min(seconds, 600)


def _set_enabled(entry: dict[str, Any], value: Any) -> None:
    if value is False:
        entry["disabled"] = True


def _set_environment(entry: dict[str, Any], value: Any) -> None:
    """Take over variables, whose values may be written as numbers or truth values."""
    if not isinstance(value, Mapping):
        entry["env"] = value
        return
    pairs = cast("Mapping[str, Any]", value)
    texts = {name: _to_text(one) for name, one in pairs.items()}
    entry["env"] = {**entry.get("env", {}), **texts}


def _to_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _pass_on_variables(entry: dict[str, Any], value: Any) -> None:
    names = cast("list[Any]", value) if isinstance(value, list) else []
    passed = {name: f"${{{name}}}" for name in names if isinstance(name, str)}
    entry["env"] = {**passed, **entry.get("env", {})}


def _set_bearer(entry: dict[str, Any], value: Any) -> None:
    entry["headers"] = {**entry.get("headers", {}), "Authorization": f"Bearer ${{{value}}}"}


def _set_headers_from_variables(entry: dict[str, Any], value: Any) -> None:
    pairs = mapping_or_empty(value)
    named = {header: f"${{{variable}}}" for header, variable in pairs.items()}
    entry["headers"] = {**entry.get("headers", {}), **named}


_TRANSLATIONS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "timeout": _set_timeout,
    "tool_timeout_sec": _set_timeout,
    "startup_timeout_sec": _set_start_timeout,
    "startup_timeout_ms": _set_start_timeout,
    "enabled": _set_enabled,
    "env": _set_environment,
    "env_vars": _pass_on_variables,
    "bearer_token_env_var": _set_bearer,
    "env_http_headers": _set_headers_from_variables,
}
