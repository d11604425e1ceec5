"""The connection to an agent's model: its name, and its client once that is needed."""

from __future__ import annotations

from collections.abc import Callable

from ferrule.models.client import ModelClient, ModelOptions


class ModelConnection:
    """Connects to one model when it is first needed.

    Args:
        model: A name, `provider:model`, or a client.
        connect: Turns a name into a client.
        options: How the model is asked.
        tool_mode: How it calls tools; `auto` chooses.
    """

    def __init__(
        self,
        model: str | ModelClient,
        connect: Callable[[str], ModelClient],
        options: ModelOptions,
        tool_mode: str,
    ) -> None:
        self.model: str | ModelClient = model
        """What was given, or its client once that was made."""
        self.connect = connect
        self.options = options
        self.tool_mode = tool_mode

    @property
    def name(self) -> str:
        """The model's full name, `provider:model`."""
        return self.model if isinstance(self.model, str) else self.model.model

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
        return self.with_model(other.model)

    async def close(self) -> None:
        """Close the connections, or the local server. They are made anew when needed."""
        if not isinstance(self.model, str):
            await self.model.close()
