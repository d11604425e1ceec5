"""Find what was set up for Claude Code, and plan what Ferrule takes over of it.

Read in place, and so not copied: `CLAUDE.md`, skills, and hooks of settings files. Taken over:
permission rules, mode and model, agents, slash commands (as skills), and MCP servers of
`~/.claude.json`. A folder with `.claude-plugin/plugin.json` is a plugin: its agents, commands and
skills are taken over into the workspace.

Secrets are not copied: a variable takes the place of each value that looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ferrule.connectors.mcp.configuration import read_server
from ferrule.connectors.mcp.configured_servers import load_configured_servers
from ferrule.connectors.mcp.other_programs import find_foreign_servers, read_foreign_file
from ferrule.core.errors import ConfigError
from ferrule.permissions.child_environment import is_secret_variable
from ferrule.permissions.redaction import Redactor
from ferrule.storage import paths
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import PROJECT_FILE

from .claude_settings import convert_settings, read_settings_file
from .claude_texts import plan_agents, plan_commands, plan_skills
from .plan import NewFile, Plan, format_settings

_PLUGIN = ".claude-plugin/plugin.json"
_HEADER = "# Taken over from Claude Code's settings by `ferrule import claude-code`.\n"
_REFERENCE = re.compile(r"\$\{?[A-Za-z_]")


def plan_import(folder: Path, into: Path) -> Plan:
    """Plan an import. Nothing is written.

    Args:
        folder: The folder whose `.claude` is read, or a plugin.
        into: The folder whose `.ferrule` is written.
    """
    plan = Plan()
    if (folder / _PLUGIN).is_file():
        _plan_plugin(folder, into, plan)
        return plan
    _plan_own(plan)
    _plan_folder(folder, into, plan)
    _plan_servers(folder, plan)
    plan.drop_known_settings()
    return plan


def _plan_own(plan: Plan) -> None:
    home = paths.claude()
    own = paths.config()
    file = home / "settings.json"
    plan.settings |= convert_settings(read_settings_file(file, plan), file, plan, is_own=True)
    plan_agents(home / "agents", own, "agents", plan)
    plan_commands(home / "commands", own, "skills", plan)
    if (home / "CLAUDE.md").is_file():
        plan.in_place.append(f"`{home / 'CLAUDE.md'}`")
    _note_in_place(home, plan)
    for name in ("output-styles", "plugins"):
        if (home / name).is_dir():
            plan.leave(f"`{home / name}`", f"Ferrule has no {name.replace('-', ' ')}")


def _plan_folder(folder: Path, into: Path, plan: Plan) -> None:
    claude = folder / ".claude"
    rules: dict[str, list[str]] = {}
    for name in ("settings.json", "settings.local.json"):
        file = claude / name
        converted = convert_settings(read_settings_file(file, plan), file, plan, is_own=False)
        for key, listed in converted.get("permissions", {}).items():
            rules[key] = list(dict.fromkeys((*rules.get(key, ()), *listed)))
    if rules:
        text = _HEADER + format_settings({"permissions": rules})
        plan.add_file(NewFile(into, PROJECT_FILE, text, f"{claude}/settings*.json"))
    plan_agents(claude / "agents", into, ".ferrule/agents", plan)
    plan_commands(claude / "commands", into, ".ferrule/skills", plan)
    _note_in_place(claude, plan)
    if (folder / ".mcp.json").is_file():
        plan.in_place.append(f"`{folder / '.mcp.json'}`")
    if (folder / "CLAUDE.md").is_file():
        if (folder / "AGENTS.md").is_file():
            plan.leave(f"`{folder / 'CLAUDE.md'}`", "AGENTS.md is read in its place")
        else:
            plan.in_place.append(f"`{folder / 'CLAUDE.md'}`")
    for file in (folder / "CLAUDE.local.md", claude / "CLAUDE.md"):
        if file.is_file():
            plan.leave(f"`{file}`", "it is not read: import it from the CLAUDE.md of the folder")


def _note_in_place(claude: Path, plan: Plan) -> None:
    if (claude / "rules").is_dir():
        plan.leave(
            f"`{claude / 'rules'}`", "these are not read: import them from CLAUDE.md (`@path`)"
        )
    skills = len(list((claude / "skills").glob("*/SKILL.md")))
    if skills:
        plan.in_place.append(f"{skills} skills of `{claude / 'skills'}`")


def _plan_plugin(folder: Path, into: Path, plan: Plan) -> None:
    plan_agents(folder / "agents", into, ".ferrule/agents", plan)
    plan_skills(folder / "skills", into, ".ferrule/skills", plan)
    plan_commands(folder / "commands", into, ".ferrule/skills", plan)
    if (folder / "hooks/hooks.json").is_file():
        plan.leave(
            f"the hooks of `{folder}`",
            "they run the plugin's files: write them into `.claude/settings.json` with their paths",
        )
    if (folder / ".mcp.json").is_file():
        plan.leave(f"the MCP servers of `{folder}`", f"`ferrule mcp import {folder / '.mcp.json'}`")


# ---- MCP servers


def _plan_servers(folder: Path, plan: Plan) -> None:
    found, problems = find_foreign_servers(folder, ("claude-code",))
    for problem in problems:
        plan.leave("MCP servers", problem)
    entries = {name: entry for one in found for name, entry in one.entries.items()}
    # The file lies in the folder of Claude Code where a variable moves that.
    moved = paths.claude() / ".claude.json"
    if moved.is_file():
        entries |= read_foreign_file(moved, folder)
    if not entries:
        return
    taken = {one.name for one in load_configured_servers(load_settings(workspace=folder)).servers}
    for name, entry in entries.items():
        if name in taken:
            plan.leave(f"the MCP server `{name}`", "you have a server of that name already")
            continue
        try:
            _plan_server(name, entry, plan)
        except ConfigError as error:
            plan.leave(f"the MCP server `{name}`", error.detail)


def _plan_server(name: str, entry: Any, plan: Plan) -> None:
    if not isinstance(entry, dict) or read_server(name, entry, f"`{name}`") is None:
        plan.leave(f"the MCP server `{name}`", "it is switched off")
        return
    given = cast("dict[str, Any]", entry)
    hidden = {
        **given,
        **{key: _hide_values(name, key, given, plan) for key in ("env", "headers") if key in given},
    }
    others = {key: value for key, value in hidden.items() if key not in ("env", "headers")}
    if Redactor().redact_value(others) != others:
        plan.leave(
            f"the MCP server `{name}`",
            "its arguments or its address have what looks like a secret: add it with a variable, "
            "`ferrule mcp add`",
        )
        return
    plan.servers[name] = hidden


def _hide_values(server: str, key: str, entry: Mapping[str, Any], plan: Plan) -> Any:
    """Return variables or headers with a reference in place of each secret."""
    values = entry[key]
    if not isinstance(values, dict):
        return values
    kept: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", values).items():
        text = str(value)
        is_secret = (
            key == "headers"
            or is_secret_variable(name)
            or Redactor().redact_value({name: text}) != {name: text}
        )
        if not is_secret or _REFERENCE.search(text):
            kept[name] = value
            continue
        variable = name if key == "env" else _make_variable(server, name)
        kept[name] = f"${{{variable}}}"
        plan.leave(
            f"the value of `{name}` of the MCP server `{server}`",
            f"secrets are not copied: export it as `{variable}`",
        )
    return kept


def _make_variable(server: str, header: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", f"{server}_{header}".upper()).strip("_")
