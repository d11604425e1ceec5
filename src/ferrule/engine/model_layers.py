"""The layers around a model: one list, which is their order.

    conversation   hooks on questions and answers
    tools          opens the conversation anew once the session has gained tools
    choice         which model is asked: fallbacks, routing
    offer          which tools and options this model gets, and in which tool mode
    attempt        once for each model that is asked
    check          may refuse what would be sent, and changes nothing
    leaks          no large raw content (`models.raw_content_check`)
    output         holds answers to the output type (`models.output_modes`)
    escape, mode   spells out what others may have written; tool modes, and how one falls to the
                   next. Both are `open_exchange`: nothing comes between them, and conversations
                   outside of sessions need both, too.
    client         the provider's client, or a recording

The outermost comes first. `conversation`, `choice`, `attempt` and `check` are slots: what is added
to a session may put layers there (`DriverExtension.layers`), the first given outermost. No layer
comes inside of `escape`, so none can add text that is not escaped.

A layer takes what opens a conversation and returns what opens one with the layer around it. It is
wrapped once for each session, so that its variables are the session's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Literal, Protocol

from ferrule.core.machine import Machine
from ferrule.core.value_class import frozen
from ferrule.models.client import (
    Exchange,
    ModelClient,
    ModelOptions,
    Offer,
    Open,
    ToolSpec,
    disconnect,
)
from ferrule.models.registry import check_options
from ferrule.models.tool_modes.selection import choose_tool_mode, open_exchange
from ferrule.tools.definition import Tool

from . import output as typed_output
from . import registration, tool_search
from .artifacts.large_results import ArtifactIntake, guard_exchange
from .budgets import is_share_used
from .model_fallbacks import FallbackModel, ModelFallbackExchange, ModelFallbacks
from .visible_tools import VisibleTools

Slot = Literal["conversation", "choice", "attempt", "check"]
"""Where a layer may be added."""


@frozen
class Layer:
    """A layer around the model.

    Attributes:
        slot: Where it comes in the order.
        wrap: Returns what opens a conversation with the layer around it. Called once per session.
    """

    slot: Slot
    wrap: Callable[[Open], Open]


class LayeredAgent(Protocol):
    """The agent whose model is asked: it may change its connection while a session lasts."""

    connection: ModelConnection
    visible_tools: VisibleTools
    fallback: bool
    output: typed_output.AgentOutput | None


@frozen
class ModelSession:
    """What the core's layers use of their session.

    Attributes:
        agent: Its agent.
        machine: Its machine.
        growing: Its tools, if it can gain some.
        is_usable: Tells whether it may use a tool.
        tool_discovery: Knows which deferred tools the model was shown.
        artifact_intake: Keeps its large results.
        notice: Tells a person something: a topic and a text.
    """

    agent: LayeredAgent
    machine: Machine
    growing: registration.SessionCatalog | None
    is_usable: Callable[[Tool], bool]
    tool_discovery: tool_search.ToolDiscovery | None
    artifact_intake: ArtifactIntake | None
    notice: Callable[[str, str], None]


def stack_layers(session: ModelSession, added: Iterable[Layer] = ()) -> Open:
    """Return what opens a conversation with a session's model, through all layers in their order.

    Args:
        session: The session.
        added: The layers that were added to it.
    """
    slots: dict[Slot, list[Callable[[Open], Open]]] = {
        "conversation": [],
        "choice": [],
        "attempt": [],
        "check": [],
    }
    for layer in added:
        slots[layer.slot].append(layer.wrap)
    agent = session.agent
    layers = [
        *slots["conversation"],
        *([partial(_grow, session)] if session.growing is not None else []),
        *slots["choice"],
        *([partial(_fall_back, session)] if agent.connection.fallbacks is not None else []),
        partial(_offer_tools, session),
        *slots["attempt"],
        *slots["check"],
        *([partial(_check_leaks, session)] if session.artifact_intake is not None else []),
        *([partial(_hold_to_output, session)] if agent.output is not None else []),
    ]
    open: Open = partial(_open_in_tool_mode, session)
    for wrap in reversed(layers):
        open = wrap(open)
    return open


def _grow(session: ModelSession, open: Open) -> Open:
    """Have a conversation opened anew once the session has gained tools."""
    from .registration.growing_exchange import RegistrationExchange

    catalog = session.growing
    assert catalog is not None

    def list_gained() -> tuple[ToolSpec, ...]:
        return catalog.specs(session.is_usable)

    async def open_growing(offer: Offer) -> Exchange:
        async def open_again(gained: tuple[ToolSpec, ...], tool_mode: str) -> Exchange:
            mode = tool_mode or offer.tool_mode
            return await open(replace(offer, gained=gained, tool_mode=mode))

        exchange = RegistrationExchange(open_again, catalog, list_gained, session.tool_discovery)
        await exchange.open()
        return exchange

    return open_growing


def _fall_back(session: ModelSession, open: Open) -> Open:
    """Ask the next of the agent's models when one fails."""

    async def open_with_fallbacks(offer: Offer) -> Exchange:
        connection = session.agent.connection
        fallbacks = connection.fallbacks
        if fallbacks is None:
            return await open(offer)

        async def open_one(one: ModelConnection) -> Exchange:
            return await open(replace(offer, client=one.client))

        models = [
            FallbackModel(one.name, partial(open_one, one))
            for one in (connection, *connection.others)
        ]
        is_reached = partial(is_share_used, session.machine, fallbacks.at_budget)
        return ModelFallbackExchange(models, fallbacks.on, is_reached)

    return open_with_fallbacks


def _offer_tools(session: ModelSession, open: Open) -> Open:
    """Offer the tools that this model gets: which of them it searches itself is its own matter."""
    agent = session.agent
    discovery = session.tool_discovery

    async def open_with_tools(offer: Offer) -> Exchange:
        options: ModelOptions = offer.options
        if discovery is None:
            specs = agent.visible_tools.specs()
            if offer.gained:
                specs = (*specs, *offer.gained)
        else:
            mode = await discovery.choose_mode(offer.client, offer.tool_mode)
            specs, options = discovery.offer(agent.visible_tools.specs(mode), offer.gained, options)
        tool_mode = offer.tool_mode
        if tool_mode == "auto" and not agent.fallback and specs:
            tool_mode = choose_tool_mode(await offer.client.capabilities())
        return await open(
            replace(offer, tools=specs, gained=(), options=options, tool_mode=tool_mode)
        )

    return open_with_tools


def _check_leaks(session: ModelSession, open: Open) -> Open:
    """Refuse to send what should have been kept as an artifact."""
    intake = session.artifact_intake
    assert intake is not None

    async def open_checked(offer: Offer) -> Exchange:
        exchange = await open(offer)
        return guard_exchange(exchange, intake, session.agent.visible_tools.catalog, session.notice)

    return open_checked


def _hold_to_output(session: ModelSession, open: Open) -> Open:
    """Hold answers to the output type."""
    from ferrule.models.output_modes import OutputExchange, list_output_modes

    output = session.agent.output
    assert output is not None

    async def open_held(offer: Offer) -> Exchange:
        modes = [output.mode]
        native = offer.tool_mode in ("auto", "native")
        if output.mode == "auto":
            capabilities = await offer.client.capabilities()
            native = native and capabilities.tools is not False
            modes = list_output_modes(capabilities, has_tools=bool(offer.tools), native=native)

        async def open_section(section: str, added: tuple[ToolSpec, ...]) -> Exchange:
            system = "\n\n".join(part for part in (offer.system, section) if part)
            return await open(replace(offer, system=system, tools=(*offer.tools, *added)))

        return OutputExchange(open_section, output.format, modes, offer.tools, native=native)

    return open_held


async def _open_in_tool_mode(session: ModelSession, offer: Offer) -> Exchange:
    """Open a conversation with the model itself, in a tool mode, with what is sent escaped."""
    exchange, _ = await open_exchange(
        offer.client,
        offer.tool_mode,
        offer.system,
        offer.tools,
        offer.options,
        session.notice,
        native_fallback="allow" if session.agent.fallback else "reject",
    )
    return exchange


class ModelConnection:
    """Connects to one model when it is first needed.

    Args:
        model: A name, `provider:model`, or a client.
        connect: Turns a name into a client.
        options: How the model is asked.
        tool_mode: How it calls tools; `auto` chooses.
        fallbacks: This model and those that are asked in its place, if there are any.

    Raises:
        ConfigError: One of several models does not have one of the options.
    """

    def __init__(
        self,
        model: str | ModelClient,
        connect: Callable[[str], ModelClient],
        options: ModelOptions,
        tool_mode: str,
        fallbacks: ModelFallbacks | None = None,
    ) -> None:
        self.model: str | ModelClient = model
        """What was given, or its client once that was made."""
        self.connect = connect
        self.options = options
        self.tool_mode = tool_mode
        self.fallbacks = fallbacks
        others = fallbacks.models[1:] if fallbacks is not None else ()
        self.others = tuple(ModelConnection(other, connect, options, tool_mode) for other in others)
        """The connections to the models that are asked in its place."""
        for connection in (self, *self.others) if self.others else ():
            # Later it would end a run that another model was to save.
            check_options(connection.name, options)

    @property
    def name(self) -> str:
        """The model's full name, `provider:model`."""
        return self.model if isinstance(self.model, str) else self.model.model

    def find_address(self, name: str) -> str:
        """Return the URL at which a model is reached, by its full name; "" if no client says."""
        for connection in (self, *self.others):
            if connection.name == name:
                return str(getattr(connection.model, "base_url", ""))
        return ""

    @property
    def client(self) -> ModelClient:
        """The model's client. Raises ConfigError for a name that leads nowhere."""
        if isinstance(self.model, str):
            self.model = self.connect(self.model)
        return self.model

    def with_model(
        self,
        model: str | ModelClient,
        *,
        options: ModelOptions | None = None,
        tool_mode: str | None = None,
    ) -> ModelConnection:
        """Return a connection to another model. What is not given stays the same."""
        return ModelConnection(
            model, self.connect, options or self.options, tool_mode or self.tool_mode
        )

    def share_client_of(self, other: ModelConnection) -> ModelConnection:
        """Return a connection like this one that shares another one's client."""
        shared = self.with_model(other.model)
        shared.fallbacks = other.fallbacks
        shared.others = other.others
        return shared

    async def disconnect(self) -> None:
        """Close the connections, or the local server. They are made anew when needed."""
        for connection in (self, *self.others):
            if not isinstance(connection.model, str):
                await disconnect(connection.model)

    async def close(self) -> None:
        """Close the connections for good."""
        for connection in (self, *self.others):
            if not isinstance(connection.model, str):
                await connection.model.close()
