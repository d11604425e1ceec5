"""Settings of Claude Code as Ferrule's own: permission rules, mode and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.permissions.child_environment import is_secret_variable
from ferrule.permissions.rule_evaluation import MODES
from ferrule.permissions.rules import RULE_FAMILIES, RuleList, find_similar_family, parse_rule

from .plan import Plan

_LISTS: tuple[RuleList, ...] = ("allow", "ask", "deny")
_SAME_AS = {"NotebookEdit": "Edit", "NotebookRead": "Read", "Task": "Agent"}
"""Tools that a rule may name, and the family that decides about the same here."""

_NO_COUNTERPART = {
    "statusLine": "the chat has its own status line",
    "outputStyle": "there are no output styles; write what you want into CLAUDE.md",
    "apiKeyHelper": "keys come from the environment (`ferrule doctor` names the variables)",
    "includeCoAuthoredBy": "Ferrule adds nothing to commits",
    "attribution": "Ferrule adds nothing to commits",
    "cleanupPeriodDays": "the journal keeps everything; `ferrule sessions archive` moves it",
    "enabledPlugins": "there are no plugins; `ferrule import claude-code FOLDER` takes one over",
    "extraKnownMarketplaces": "there are no plugins",
    "enableAllProjectMcpServers": "each MCP server is approved by itself: `ferrule mcp approve`",
    "enabledMcpjsonServers": "each MCP server is approved by itself: `ferrule mcp approve`",
    "disabledMcpjsonServers": "a server that you do not approve does nothing",
    "sandbox": "the sandbox is on if the system has one; `ferrule doctor` shows what it enforces",
    "disableAllHooks": "`hooks.claude: false` leaves out the hooks of Claude Code",
    "mcpServers": "write them into `.mcp.json`, which is read in place",
    "additionalDirectories": "tools stay in the workspace; `folders` in your settings opens "
    "others to commands",
    "disableBypassPermissionsMode": "a repository cannot choose that mode anyway",
}
_IN_PLACE = ("hooks", "$schema")


def read_settings_file(file: Path, plan: Plan) -> dict[str, Any]:
    """Return the settings of a file; an empty mapping, and a note, if it cannot be read."""
    try:
        content: Any = parse_json(file.read_text("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        plan.leave(str(file), f"it cannot be read: {error}")
        return {}
    if not isinstance(content, dict):
        plan.leave(str(file), "it is not a JSON object")
        return {}
    return cast("dict[str, Any]", content)


def convert_settings(
    content: Mapping[str, Any], file: Path, plan: Plan, *, is_own: bool
) -> dict[str, Any]:
    """Return Ferrule's settings for a settings file of Claude Code.

    Args:
        content: What the file has.
        file: The file, for the plan.
        plan: Gets what works in place, and what has no counterpart.
        is_own: Whether it is the person's own file: a folder's cannot choose model and mode.
    """
    settings: dict[str, Any] = {}
    for key, value in content.items():
        if key == "permissions" and isinstance(value, dict):
            _convert_permissions(cast("dict[str, Any]", value), file, plan, settings, is_own)
        elif key == "model":
            _convert_model(value, file, plan, settings, is_own)
        elif key == "env" and isinstance(value, dict):
            _explain_variables(cast("dict[str, Any]", value), file, plan)
        elif key == "hooks":
            count = len(cast("dict[str, Any]", value)) if isinstance(value, dict) else 0
            plan.in_place.append(f"hooks for {count} events of `{file}`")
        elif key not in _IN_PLACE:
            reason = _NO_COUNTERPART.get(key, "Ferrule has no such setting")
            plan.leave(f"`{key}` of `{file}`", reason)
    return settings


def _convert_permissions(
    content: Mapping[str, Any], file: Path, plan: Plan, settings: dict[str, Any], is_own: bool
) -> None:
    rules: dict[str, list[str]] = {}
    for name in _LISTS:
        given = content.get(name)
        if isinstance(given, list):
            converted = convert_rules(cast("list[Any]", given), name, file, plan)
            if converted:
                rules[name] = converted
    if rules:
        settings["permissions"] = rules
    for key, value in content.items():
        if key == "defaultMode":
            _convert_mode(value, file, plan, settings, is_own)
        elif key not in _LISTS:
            reason = _NO_COUNTERPART.get(key, "Ferrule has no such setting")
            plan.leave(f"`permissions.{key}` of `{file}`", reason)


def convert_rules(rules: Iterable[Any], to: RuleList, file: Path, plan: Plan) -> list[str]:
    """Return permission rules in Ferrule's words; those that mean nothing here go into the plan."""
    converted: list[str] = []
    for rule in rules:
        text = str(rule).strip()
        name, bracket, rest = text.partition("(")
        family = _SAME_AS.get(name) or find_similar_family(name) or name
        place = f"the {to} rule `{text}` of `{file}`"
        if family[:1].isupper() and family not in RULE_FAMILIES:
            lost = ", so nothing is denied by it" if to == "deny" else ""
            plan.leave(place, f"`{name}` is not a tool here{lost}")
            continue
        written = f"{family}{bracket}{rest}"
        try:
            parse_rule(written, to)
        except ConfigError as error:
            plan.leave(place, error.detail)
            continue
        if written not in converted:
            converted.append(written)
    return converted


def _convert_mode(
    value: Any, file: Path, plan: Plan, settings: dict[str, Any], is_own: bool
) -> None:
    place = f"`permissions.defaultMode: {value}` of `{file}`"
    if not is_own:
        plan.leave(place, "a folder does not choose it: `mode` in your own settings, or --mode")
    elif value == "bypassPermissions":
        plan.leave(place, "ask for it when you want it: `--mode bypassPermissions`")
    elif value not in MODES:
        plan.leave(place, f"there is no such mode; there are {', '.join(MODES)}")
    else:
        settings["mode"] = value


def _convert_model(
    value: Any, file: Path, plan: Plan, settings: dict[str, Any], is_own: bool
) -> None:
    place = f"`model: {value}` of `{file}`"
    if not is_own:
        plan.leave(place, "a folder does not choose it: `model` in your own settings, or -m")
    elif isinstance(value, str) and value.startswith("claude-") and "[" not in value:
        settings["model"] = f"anthropic:{value}"
    else:
        plan.leave(place, "it names no fixed model; `ferrule setup` chooses one")


def _explain_variables(variables: Mapping[str, Any], file: Path, plan: Plan) -> None:
    for name in variables:
        place = f"the variable `{name}` of `{file}`"
        if is_secret_variable(name):
            plan.leave(place, "secrets are not copied: export it where you start Ferrule")
        elif name.startswith(("ANTHROPIC_", "CLAUDE_", "DISABLE_", "MAX_")):
            plan.leave(place, "it steers Claude Code itself")
        else:
            plan.leave(
                place,
                "settings set no variables: export it where you start Ferrule, and name it in "
                "`env.allow` if commands need it",
            )
