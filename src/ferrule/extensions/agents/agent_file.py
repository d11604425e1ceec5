"""Parse an agent file: Markdown whose front matter limits an agent, with its prompt below.

    ---
    description: Reads code and says what is wrong with it.
    tools: [read_file, search_files]
    denied: [run_command]
    model: ollama:qwen3
    mode: plan
    limits: { max_turns: 5, max_seconds: 120, max_tokens: 20000 }
    verify: pytest -q
    ---
    You review code. Name file and line of each problem.

The name is `name`, or the file's stem. Everything here narrows what the delegating session has
(`engine.delegation.sub_agent`). Accepted from Claude Code with the same meaning: `tools` as one
text with commas, its tool names (`Read`, `Bash`, `mcp__server__tool`), `disallowedTools` for
`denied`, `model: inherit`. Its `model: sonnet` (and the like) names no model here: that is a
warning, and the session's model is used. Unknown keys are warnings with the nearest known one;
anything else that is wrong is an error with its place.
"""

from __future__ import annotations

from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.limits import Limits
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.extensions.front_matter import (
    FileWarning,
    find_unknown_keys,
    get_choice,
    get_field,
    get_text,
    get_texts,
    parse_document,
    read_output_schema,
)
from ferrule.extensions.hooks.claude_tool_names import OWN_NAMES
from ferrule.permissions.rule_evaluation import MODES
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
    "output",
)
_LIMITS = (
    "max_turns",
    "max_calls_per_turn",
    "max_output_bytes",
    "max_seconds",
    "max_tokens",
    "on_limit",
    "max_cost",
    "max_calls",
)
_DECIMAL = ("max_seconds", "max_cost")
_CLAUDE_MODELS = ("sonnet", "opus", "haiku")


def parse_agent(data: bytes, file: str) -> tuple[SubAgent, list[FileWarning]]:
    """Parse an agent file and return it with warnings; `file` is its name as people see it.

    Raises:
        ConfigError: The file is invalid. The message has file, line and column.
    """
    document = parse_document(data, file)
    node = document.fields
    warnings = find_unknown_keys(node, KEYS, "an agent")
    if not document.body:
        message = "there is no text after the front matter: the agent has no instructions"
        warnings.append(FileWarning(node.where, message))
    denied = (*(_tools(node, "denied") or ()), *(_tools(node, "disallowedTools") or ()))
    try:
        agent = SubAgent(
            name=get_text(node, "name") or _get_stem(file),
            description=get_text(node, "description"),
            prompt=document.body,
            tools=_tools(node, "tools"),
            denied=denied,
            model=_model(node, warnings),
            limits=_limits(node, warnings),
            mode=get_choice(node, "mode", MODES),
            verify=get_text(node, "verify"),
            source=f"file {file}",
            output_type=read_output_schema(node) or str,
        )
    except ConfigError as error:
        if error.detail.startswith(file):
            raise
        raise node.error(error.detail, hint=error.hint) from error
    return agent, warnings


def find_agent_name(data: bytes, file: str) -> str:
    """Return the name that an agent file gives its agent, as far as an invalid file says it."""
    try:
        return get_text(parse_document(data, file).fields, "name") or _get_stem(file)
    except ConfigError:
        return _get_stem(file)


def _get_stem(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(".md")


def _tools(node: Node, name: str) -> tuple[str, ...] | None:
    """Return names and patterns in Ferrule's own terms, or None if the key is absent."""
    listed = get_texts(node, name)
    if listed is None:
        return None
    names = [part.strip() for text in listed for part in text.split(",")]
    return tuple(_own_name(one) for one in names if one)


def _own_name(name: str) -> str:
    if not name.startswith("mcp__"):
        return OWN_NAMES.get(name, name)
    tool = name.removeprefix("mcp__")
    return tool if "__" in tool else f"{tool}__*"


def _model(node: Node, warnings: list[FileWarning]) -> str:
    model = get_text(node, "model")
    place = get_field(node, "model")
    if place is None or model in ("", "inherit"):
        return ""
    if model in _CLAUDE_MODELS:
        warnings.append(
            FileWarning(place.where, f"`{model}` names no model here; the session's model is used")
        )
        return ""
    if ":" not in model.strip(":"):
        raise place.error(f"the model `{model}` names no provider", hint="write `provider:model`")
    return model


def _limits(node: Node, warnings: list[FileWarning]) -> Limits | None:
    limits = get_field(node, "limits")
    if limits is None:
        return None
    if limits.pairs is None:
        raise limits.error("`limits` must be a mapping", hint=f"its keys: {', '.join(_LIMITS)}")
    warnings += find_unknown_keys(limits, _LIMITS, "limits")
    # Without a limit of the agent's own, those of its session and depth apply.
    given: dict[str, Any] = {"max_calls_per_turn": 1_000_000}
    for name in _LIMITS:
        place = get_field(limits, name)
        if place is None:
            continue
        if name != "on_limit" and not _is_positive(place.value, decimal=name in _DECIMAL):
            raise place.error(f"`{name}` must be a number above 0")
        given[name] = place.value
    try:
        return Limits(**given)
    except ConfigError as error:
        raise limits.error(error.detail, hint=error.hint) from error


def _is_positive(value: Any, *, decimal: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return (decimal or isinstance(value, int)) and value > 0
