"""Check whether a provider accepts a key, by one request that costs nothing."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ferrule.core.value_class import frozen

from .answer_building import objects_in
from .http.transport import Transport
from .provider_errors import error_from_response
from .request_encoding import parse_object

SECONDS = 10.0
"""How long the request may take."""


@runtime_checkable
class ServedModel(Protocol):
    """A model client whose model is behind a URL."""

    base_url: str
    headers: dict[str, str]
    transport: Transport

    @property
    def model(self) -> str:
        """The full name, `provider:model`."""
        ...


@frozen
class KeyCheck:
    """What a provider said to a key.

    Attributes:
        accepted: Whether it takes the key; None if it did not say.
        detail: What it said, for people.
        models: The names of the models that it listed.
    """

    accepted: bool | None
    detail: str
    models: tuple[str, ...] = ()


async def check_key(client: ServedModel, path: str) -> KeyCheck:
    """Ask a provider for something that it only says to those with a key.

    Args:
        client: A client of any of its models.
        path: What to ask for, behind the client's URL (`Provider.key_path`).

    Raises:
        ProviderError: The provider cannot be reached.
    """
    url = f"{client.base_url}{path}"
    answer = await client.transport.get(url, client.headers, timeout=SECONDS)
    if answer.status == 200:
        body = parse_object(answer.body)
        listed: Any = body.get("data") or body.get("models")
        named = [str(one.get("id") or one.get("name") or "") for one in objects_in(listed)]
        names = [name.removeprefix("models/") for name in named]
        return KeyCheck(True, f"accepted by {client.base_url}", tuple(filter(None, names)))
    error = error_from_response(
        client.model, answer.status, answer.headers, answer.body, tools=False
    )
    if error.code == "unauthorized":
        # The key is refused, whatever the model is.
        return KeyCheck(False, error.detail.removeprefix(f"{client.model}: "))
    return KeyCheck(None, f"{url} answered HTTP {answer.status}")
