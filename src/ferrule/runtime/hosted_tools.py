"""Tools that a provider runs itself, as the settings name them: checked, with secrets out of
variables, and who answers for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.models.hosted_tools import asks_approval, tools_json
from ferrule.storage.settings.settings import ForModel, Settings
from ferrule.tools.definition import Tool

Hosted = tuple[Mapping[str, Any], ...]
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def hosted_tools(settings: Settings, model: str, mine: ForModel) -> Hosted:
    """What holds for a model: its own, else its provider's. Raises ConfigError for what cannot be
    sent, and for a written secret.
    """
    given = mine.provider_tools
    if given is None:
        given = settings.provider(model.partition(":")[0]).provider_tools
    tools = tuple(_filled(tool) for tool in given)
    tools_json(tools)
    return tools


def approval_tools(settings: Settings) -> tuple[Tool, ...]:
    """The tool that puts a provider's question to the gate, where the settings name a server that
    it asks about.
    """
    named = (value for key, value in settings.values.items() if key.endswith(".provider_tools"))
    if not any(asks_approval(cast("Hosted", value or ())) for value in named):
        return ()
    from ferrule.toolkits import remote_mcp

    return remote_mcp.TOOLS


def _filled(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A remote server with what its secrets are: settings name the variables that hold them."""
    filled = dict(tool)
    if "authorization" in tool:
        filled["authorization"] = _secret(tool["authorization"])
    if isinstance(headers := tool.get("headers"), Mapping):
        given = cast("Mapping[str, Any]", headers)
        filled["headers"] = {name: _secret(value) for name, value in given.items()}
    return filled


def _secret(text: object) -> str:
    if not isinstance(text, str) or not _VARIABLE.search(text):
        raise ConfigError(
            "provider_tools: a secret is not kept in files",
            hint="name the variable: `Bearer ${NAME}`",
        )
    return _VARIABLE.sub(_value, text)


def _value(found: re.Match[str]) -> str:
    value = os.environ.get(found[1], "")
    if not value:
        raise ConfigError(f"provider_tools: the variable `{found[1]}` is not set")
    return value
