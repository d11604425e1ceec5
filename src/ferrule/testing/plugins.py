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
from typing import Any, cast

from ferrule.core.calls import ToolResult
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.engine.plugins.loading import find_manifest_problems
from ferrule.engine.plugins.plugin_set import PluginSet, set_up_plugins, setup_for_program
from ferrule.engine.plugins.protocol import Parts, Plugin, Setup
from ferrule.models.registry import create_model_client
from ferrule.models.scripted import Scripted, says
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import PermissionGate


def check_plugin(plugin: Plugin) -> None:
    """Check that a plugin keeps the rules of all plugins, and its manifest if there is one.

    It is frozen; it can be set up twice, with the same tools; two sessions of one agent run at
    once; and what it opens is closed within its time. The manifest beside its package is valid, and
    says of name, fields, defaults and tools what the class says; its commands and pages are there.

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
    with TemporaryDirectory() as folder:
        first, second = (_list_tools(plugin, Path(folder)) for _ in range(2))
        assert first == second, f"`{plugin.name}` brings other tools when it is set up again"
        asyncio.run(_run_twice(plugin, Path(folder)))
    problems = [*find_manifest_problems(plugin, [name for name, _ in first])]
    assert not problems, f"`{plugin.name}`: {'; '.join(problems)}"


def call_plugin(
    plugin: Plugin,
    tool: str,
    /,
    *,
    state: Path,
    permissions: Permissions | None = None,
    **arguments: Any,
) -> ToolResult:
    """Call a tool of a plugin in a session of its own.

    Args:
        plugin: The plugin.
        tool: The tool's full name.
        state: The plugin's own folder, and the workspace.
        permissions: Rules, mode and approver; by default every call is allowed.
        arguments: The arguments.
    """
    return asyncio.run(_call(plugin, state, permissions, tool, arguments))


def make_plugin_agent(
    plugin: Plugin, model: Scripted, *, state: Path, permissions: Permissions | None = None
) -> Agent[None, str]:
    """Return an agent with a plugin whose own folder is this one, not the person's.

    Args:
        plugin: The plugin.
        model: What the model says.
        state: The plugin's own folder, and the workspace.
        permissions: Rules, mode and approver; by default every call is allowed.
    """
    added = _set_up(plugin, state)
    return Agent(
        model,
        added.tools,
        plugins=added,
        workspace=state,
        permissions=permissions or Permissions(mode="bypassPermissions"),
    )


async def _call(
    plugin: Plugin,
    state: Path,
    permissions: Permissions | None,
    tool: str,
    arguments: dict[str, Any],
) -> ToolResult:
    agent = make_plugin_agent(plugin, Scripted([]), state=state, permissions=permissions)
    async with agent, agent.session() as session:
        return await session.call_tool(tool, arguments)


async def _run_twice(plugin: Plugin, state: Path) -> None:
    model = Scripted([says("one"), says("two")])
    async with make_plugin_agent(plugin, model, state=state) as agent:
        await asyncio.gather(agent.run("one"), agent.run("two"))


@frozen
class _InFolder:
    """A plugin whose own folder is this one."""

    plugin: Plugin
    folder: Path

    @property
    def name(self) -> str:
        return self.plugin.name

    def setup(self, setup: Setup) -> Parts:
        return self.plugin.setup(replace(setup, state=lambda: self.folder))


def _set_up(plugin: Plugin, state: Path) -> PluginSet:
    workspace = Workspace(state)
    setup = setup_for_program("scripted:test", workspace, create_model_client, PermissionGate())
    return set_up_plugins([cast("Plugin", _InFolder(plugin, state))], setup)


def _list_tools(plugin: Plugin, state: Path) -> Sequence[tuple[str, str]]:
    return [(tool.full_name, tool.schema_json()) for tool in _set_up(plugin, state).tools]
