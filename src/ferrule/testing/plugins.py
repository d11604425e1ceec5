"""Checks that every plugin should pass, and a call of one of its tools, for tests of plugins.

def test_notes(tmp_path):
    check_plugin(Notes())
    assert "blue" in call_plugin(Notes(), "recall", question="Which key?", state=tmp_path).text
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ferrule.core.calls import ToolResult
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.engine.plugins.loading import find_manifest_problems
from ferrule.engine.plugins.plugin_set import set_up_plugins, setup_for_program
from ferrule.engine.plugins.protocol import Plugin, Setup
from ferrule.models.registry import create_model_client
from ferrule.models.scripted import Scripted, says
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import PermissionGate


def check_plugin(plugin: Plugin, *others: Plugin) -> None:
    """Check that a plugin keeps the rules of all plugins, and its manifest if there is one.

    It is frozen; it can be set up twice, with the same tools; two sessions of one agent run at
    once; and what it opens is closed within its time. The manifest beside its package is valid, and
    says of name, fields, defaults and tools what the class says; its commands and pages are there.

    Args:
        plugin: The plugin.
        others: The same with other fields, where it brings other tools with them.

    Raises:
        AssertionError: It breaks a rule; the message names it.
    """
    try:
        plugin.name = plugin.name  # pyright: ignore[reportAttributeAccessIssue]  must fail
    except (AttributeError, FrozenInstanceError):
        pass
    else:
        shown = type(plugin).__name__
        raise AssertionError(f"`{shown}` can be changed: use `@dataclass(frozen=True)`")
    tools: set[str] = set()
    for one in (plugin, *others):
        with TemporaryDirectory() as folder:
            first, second = (_list_tools(one, Path(folder)) for _ in range(2))
            assert first == second, f"`{plugin.name}` brings other tools when it is set up again"
            asyncio.run(_run_twice(one, Path(folder)))
            tools.update(name for name, _ in first)
    problems = [*find_manifest_problems(plugin, tools)]
    assert not problems, f"`{plugin.name}`: {'; '.join(problems)}"


def call_plugin(plugin: Plugin, tool: str, /, *, state: Path, **arguments: Any) -> ToolResult:
    """Call a tool of a plugin in a session of its own, with every call allowed.

    Args:
        plugin: The plugin.
        tool: The tool's full name.
        state: The folder in which the plugin has one of its own, and the workspace.
        arguments: The arguments.
    """
    return asyncio.run(_call(plugin, state, tool, arguments))


async def _call(plugin: Plugin, state: Path, tool: str, arguments: dict[str, Any]) -> ToolResult:
    async with _make_agent(plugin, state, Scripted([])) as agent, agent.session() as session:
        return await session.call_tool(tool, arguments)


async def _run_twice(plugin: Plugin, state: Path) -> None:
    async with _make_agent(plugin, state, Scripted([says("one"), says("two")])) as agent:
        await asyncio.gather(agent.run("one"), agent.run("two"))


def _make_agent(plugin: Plugin, state: Path, model: Scripted) -> Agent[None, str]:
    added = set_up_plugins([plugin], _make_setup(state))
    return Agent(
        model,
        added.tools,
        plugins=added,
        workspace=state,
        permissions=Permissions(mode="bypassPermissions"),
    )


def _list_tools(plugin: Plugin, state: Path) -> Sequence[tuple[str, str]]:
    tools = set_up_plugins([plugin], _make_setup(state)).tools
    return [(tool.full_name, tool.schema_json()) for tool in tools]


def _make_setup(state: Path) -> Setup:
    return replace(
        setup_for_program("scripted:test", Workspace(state), create_model_client, PermissionGate()),
        state=lambda: state,
    )
