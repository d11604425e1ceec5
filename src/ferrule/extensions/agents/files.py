"""An agent as a file: Markdown whose front matter says what it may use, and whose text is its
prompt.

    ---
    description: Reads code and says what is wrong with it.
    tools: [read_file, search_files]
    denied: [run_command]
    model: ollama:qwen3
    mode: plan
    limits: { max_rounds: 5, max_seconds: 120, max_tokens: 20000 }
    verify: pytest -q
    ---
    You review code. Name file and line of each problem.

The name is `name`, or the file's stem. All of it narrows what the session that delegates has
(`engine.delegation.sub_agent`). Accepted from Claude Code, where it means the same: `tools` as one
text with commas, its names of tools (`Read`, `Bash`, `mcp__server__tool`), `disallowedTools` for
`denied`, `model: inherit`. Its `model: sonnet` (and the like) names no model here: a warning, and
the session's model. Keys that mean nothing are warnings with the nearest that does; anything else
that is wrong is an error with its place.
"""

from __future__ import annotations

from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.limits import Limits
from ferrule.engine.delegation.sub_agent import DELEGATE, SubAgent
from ferrule.extensions.front_matter import (
    Warned,
    choice_of,
    field,
    parse_document,
    text_of,
    texts_of,
    unknown_keys,
)
from ferrule.extensions.hooks.contract import TOOLS
from ferrule.permissions.gate import MODES
from ferrule.storage.settings.yaml_tree import Node

KEYS = (
    "name",
    "description",
    "tools",
    "denied",
    "disallowedTools",
    "model",
    "mode",
    "limits",
    "verify",
)
_LIMITS = (
    "max_rounds",
    "max_calls_per_round",
    "max_output_bytes",
    "max_seconds",
    "max_tokens",
    "on_limit",
    "max_cost",
    "max_calls",
)
_DECIMAL = ("max_seconds", "max_cost")
_CLAUDE_MODELS = ("sonnet", "opus", "haiku")
_CLAUDE_TOOLS = {
    **{theirs.tool: ours for ours, theirs in TOOLS.items()},
    "Glob": "file_tree",
    "MultiEdit": "edit_file",
    "Task": DELEGATE,
    "Agent": DELEGATE,
}


def parse_agent(data: bytes, file: str) -> tuple[SubAgent, list[Warned]]:
    """The agent of a file; `file` is its name as people see it. Raises ConfigError with file, line
    and column.
    """
    document = parse_document(data, file)
    node = document.fields
    warned = unknown_keys(node, KEYS, "an agent")
    if not document.body:
        warned.append(
            Warned(
                node.where, "there is no text after the front matter: the agent has no instructions"
            )
        )
    denied = (*(_tools(node, "denied") or ()), *(_tools(node, "disallowedTools") or ()))
    try:
        agent = SubAgent(
            name=text_of(node, "name") or file.rpartition("/")[2].removesuffix(".md"),
            description=text_of(node, "description"),
            prompt=document.body,
            tools=_tools(node, "tools"),
            denied=denied,
            model=_model(node, warned),
            limits=_limits(node, warned),
            mode=choice_of(node, "mode", MODES),
            verify=text_of(node, "verify"),
            source=f"file {file}",
        )
    except ConfigError as error:
        raise (
            error if error.detail.startswith(file) else node.error(error.detail, hint=error.hint)
        ) from error
    return agent, warned


def _tools(node: Node, name: str) -> tuple[str, ...] | None:
    """Names and patterns in our own words; None if the key is not there."""
    listed = texts_of(node, name)
    if listed is None:
        return None
    names = [part.strip() for text in listed for part in text.split(",")]
    return tuple(_own_name(one) for one in names if one)


def _own_name(name: str) -> str:
    if not name.startswith("mcp__"):
        return _CLAUDE_TOOLS.get(name, name)
    tool = name.removeprefix("mcp__")
    return tool if "__" in tool else f"{tool}__*"


def _model(node: Node, warned: list[Warned]) -> str:
    model = text_of(node, "model")
    place = field(node, "model")
    if place is None or model in ("", "inherit"):
        return ""
    if model in _CLAUDE_MODELS:
        warned.append(
            Warned(place.where, f"`{model}` names no model here; the agent uses its session's")
        )
        return ""
    if ":" not in model.strip(":"):
        raise place.error(f"the model `{model}` names no provider", hint="write `provider:model`")
    return model


def _limits(node: Node, warned: list[Warned]) -> Limits | None:
    found = field(node, "limits")
    if found is None:
        return None
    if found.pairs is None:
        raise found.error("`limits` must be a mapping", hint=f"its keys: {', '.join(_LIMITS)}")
    warned += unknown_keys(found, _LIMITS, "limits")
    # What is not said is no limit of the agent's own: that of its session and depth holds.
    given: dict[str, Any] = {"max_rounds": 1_000_000, "max_calls_per_round": 1_000_000}
    for name in _LIMITS:
        place = field(found, name)
        if place is None:
            continue
        number = isinstance(place.value, (int, float)) and not isinstance(place.value, bool)
        whole = number and (name in _DECIMAL or isinstance(place.value, int))
        if name != "on_limit" and not (whole and place.value > 0):
            raise place.error(f"`{name}` must be a number above 0")
        given[name] = place.value
    try:
        return Limits(**given)
    except ConfigError as error:
        raise found.error(error.detail, hint=error.hint) from error
