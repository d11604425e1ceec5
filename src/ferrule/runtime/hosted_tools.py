"""Tools that a provider runs itself (`provider_tools`), with secrets filled in from variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.models.hosted_tools import encode_hosted_tools, needs_approval
from ferrule.storage.settings.settings import ModelSettings, Settings
from ferrule.tools.definition import Tool

Hosted = tuple[Mapping[str, Any], ...]
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def resolve_hosted_tools(settings: Settings, model: str, mine: ModelSettings) -> Hosted:
    """Return the provider tools of a model: its own, else those of its provider.

    Raises:
        ConfigError: A tool cannot be sent, or its entry holds a secret in plain text.
    """
    entries = mine.provider_tools
    if entries is None:
        entries = settings.provider(model.partition(":")[0]).provider_tools
    tools = tuple(_fill_secrets(tool) for tool in entries)
    encode_hosted_tools(tools)
    return tools


def approval_tools(settings: Settings) -> tuple[Tool, ...]:
    """Return the tool that passes a provider's approval requests to the gate, if it is needed.

    It is needed if the settings name a remote server for which the provider asks for approval.
    """
    named = (value for key, value in settings.values.items() if key.endswith(".provider_tools"))
    if not any(needs_approval(cast("Hosted", value or ())) for value in named):
        return ()
    from ferrule.toolkits import remote_mcp

    return remote_mcp.TOOLS


def _fill_secrets(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill in the secrets of a remote server from the variables that its entry names."""
    filled = dict(tool)
    if "authorization" in tool:
        filled["authorization"] = _expand(tool["authorization"])
    headers = tool.get("headers")
    if isinstance(headers, Mapping):
        values = cast("Mapping[str, Any]", headers)
        filled["headers"] = {name: _expand(value) for name, value in values.items()}
    return filled


def _expand(text: object) -> str:
    if not isinstance(text, str) or not _VARIABLE.search(text):
        raise ConfigError(
            "provider_tools: a secret must not be written into the settings",
            hint="name the variable that holds it: `Bearer ${NAME}`",
        )
    return _VARIABLE.sub(_read_variable, text)


def _read_variable(match: re.Match[str]) -> str:
    value = os.environ.get(match[1], "")
    if not value:
        raise ConfigError(
            f"provider_tools: the variable `{match[1]}` is not set", hint="set it to the secret"
        )
    return value
