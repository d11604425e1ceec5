"""The sub-agents that sessions may delegate to, and the clients of their own models."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ferrule.core.errors import ConfigError
from ferrule.engine.background import TASK_TOOLS
from ferrule.models.client import ModelClient
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import SideEffect

from .sub_agent import DelegationLimits, SubAgent


class SubAgentRegistry:
    """The sub-agents of an Agent. Raises ConfigError for two with one name."""

    def __init__(self, agents: Iterable[SubAgent], limits: DelegationLimits | None = None) -> None:
        self.agents: dict[str, SubAgent] = {}
        self.limits = limits or DelegationLimits()
        self._clients: dict[str, ModelClient] = {}
        for agent in agents:
            earlier = self.agents.setdefault(agent.name, agent)
            if earlier is not agent:
                raise ConfigError(
                    (
                        f"two agents are named `{agent.name}` (from {earlier.source} and "
                        f"{agent.source})"
                    ),
                    hint="rename one",
                )

    def model_client(self, model: str, connect: Callable[[str], ModelClient]) -> ModelClient:
        """Return the client of a sub-agent's own model, connected once. Raises ConfigError."""
        if model not in self._clients:
            self._clients[model] = connect(model)
        return self._clients[model]

    async def disconnect(self) -> None:
        """Close the clients of sub-agents' own models; they are opened again when needed."""
        clients = list(self._clients.values())
        self._clients = {}
        for model_client in clients:
            await model_client.close()

    def is_read_only(self, agent: str, tools: Iterable[str] | None, catalog: Catalog) -> bool:
        """Whether no tool that a sub-agent could use changes anything."""
        definition = self.agents.get(agent)
        if definition is None and (agent or tools is None):
            return False
        given = [
            tool
            for tool in catalog
            if (definition is None or definition.may_use(tool.full_name))
            and (tools is None or tool.full_name in tools)
        ]
        reading = (SideEffect.NONE, SideEffect.READ)
        return all(tool.side_effect in reading for tool in given if tool not in TASK_TOOLS)
