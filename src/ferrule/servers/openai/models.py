"""The models offered to clients: the agent as `ferrule`, and models that are lent as they are.

    ferrule                      the agent, with the model of its settings
    ferrule/ollama:llama3.2      the agent, with another model that is offered
    ollama:llama3.2              the model alone, for clients with tools of their own

A model alone is offered only where the owner of the server asks for it: what the agent has around
its model (instructions, rules, hooks, budgets, journal) is not there.

A client chooses among these and gives no address: where a provider is and which key is used is set
in the settings of the server's owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.models.client import ModelClient, ModelOptions
from ferrule.runtime.assemble import Assembly
from ferrule.runtime.http.http_security import Visitor
from ferrule.runtime.model_clients import create_client, read_model_options
from ferrule.tools.catalog import Catalog

from .errors import RequestRefused

AGENT = "ferrule"


@frozen
class ModelChoice:
    """The meaning of a client's model id. `uses_agent` says whether an agent is to work with it."""

    model: str
    uses_agent: bool


class OfferedModels:
    """The models of one server. Model clients are created on first use, and kept."""

    def __init__(
        self, assembly: Assembly, offers: Iterable[str], direct: Iterable[str], *, named: bool
    ) -> None:
        self._assembly = assembly
        self._own = assembly.agent.model
        self._offered = tuple(dict.fromkeys((self._own, *offers)))
        self._direct = tuple(dict.fromkeys(direct))
        if self._direct and assembly.agent.limits.of_owners:
            raise ConfigError(
                f"`{self._direct[0]}` is offered without the agent, where the limits of users and "
                "tenants do not count",
                hint="offer it with the agent, or drop the limits",
            )
        self._named = named
        self._clients: dict[str, ModelClient] = {}
        self._agents: dict[tuple[str, str, str], Agent] = {}

    @property
    def ids(self) -> list[str]:
        """The ids that clients may ask for."""
        others = [f"{AGENT}/{name}" for name in self._offered if name != self._own]
        return [AGENT, *others, *self._direct]

    def choose(self, id_: str) -> ModelChoice:
        """Return the meaning of an id. Raises Refused for one that is not offered."""
        if id_ == AGENT:
            return ModelChoice(self._own, True)
        agent = id_.startswith(f"{AGENT}/")
        name = id_.removeprefix(f"{AGENT}/")
        if name not in (self._offered if agent else self._direct):
            known = ", ".join(f"`{one}`" for one in self.ids)
            raise RequestRefused(
                f"no model `{id_[:200]}` here; available: {known}",
                param="model",
                code="model_not_found",
                status=404,
            )
        return ModelChoice(name, agent)

    def model_entry(self, id_: str) -> dict[str, Any]:
        """Return a model as the API lists it. Raises Refused."""
        self.choose(id_)
        return {"id": id_, "object": "model", "created": 0, "owned_by": AGENT}

    def client(self, model: str) -> ModelClient:
        """Return the model client of an offered model. Raises ConfigError."""
        if model == self._own:
            return self._assembly.agent.model_client
        if model not in self._clients:
            self._clients[model] = create_client(self._assembly.settings, model)
        return self._clients[model]

    def options(self, model: str) -> ModelOptions:
        """Return the options of a model from the settings. Raises ConfigError."""
        return read_model_options(self._assembly.settings, model)

    def tool_mode(self, model: str) -> str:
        """Return the tool mode of a model from the settings."""
        mode = self._assembly.settings.for_model(model).tool_mode
        return "auto" if mode == "none" else mode

    def agent(self, model: str, visitor: Visitor) -> Agent:
        """Return the agent that works with a model for this visitor. Raises ConfigError."""
        user = (visitor.tenant, visitor.user) if self._named else ("", "")
        if (*user, model) not in self._agents:
            self._agents[*user, model] = self._create_agent(model, user)
        return self._agents[*user, model]

    async def close(self) -> None:
        """Close the model clients; the assembly's own stays open for its owner.

        An error is reported and does not keep the others open.
        """
        model_clients, self._clients = list(self._clients.values()), {}
        for model_client in model_clients:
            try:
                await model_client.close()
            except FerruleError as error:
                self._assembly.notice(error.detail)

    def _create_agent(self, model: str, user: tuple[str, str]) -> Agent:
        base = self._assembly.agent
        model_client = self.client(model)
        tenant, name = user
        made = base.copy_for_user(name, tenant=tenant) if self._named else base.copy()
        if model != self._own:
            mine = self._assembly.settings.for_model(model)
            made.change_model(
                model_client, options=self.options(model), tool_mode=self.tool_mode(model)
            )
            made.limits = mine.limits.with_owner_limits(base.limits)
            if not mine.tools_enabled or mine.tool_mode == "none":
                made.catalog = Catalog()
        return made
