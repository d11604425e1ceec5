"""The connection to an agent's model: its name, and its client once that is needed."""

from __future__ import annotations

from collections.abc import Callable

from ferrule.models.client import ModelClient, ModelOptions, disconnect
from ferrule.models.registry import check_options

from .model_fallbacks import ModelFallbacks


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
