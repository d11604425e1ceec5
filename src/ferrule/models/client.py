"""The seam between the engine and a model. Adding a provider is one file that fulfils `Wire`.

A wire opens an `Exchange` per session. The exchange encodes each message once, keeps its bytes, and
on every round sends the stable prefix (system text, tools, earlier messages) plus what is new.

Contract, run as `ferrule.testing.wire_conformance`:

* `ask` sends `history` as it is; the history it gets only ever grows. It returns one whole
  `ModelAnswered`, or raises `ProviderError` (never a library's own exception).
* Text goes to the sink in the order it arrives; the pieces joined are the answer's text.
* Deltas may be split at any byte; calls are merged by index or id, in order of first appearance.
  Ids that are missing stay empty (the machine makes them up). Arguments given as an object become
  compact JSON; a string is kept as it is, also if it is broken.
* A call that was cut off is returned as it stands with `stop="length"`: never completed by
  guessing.
* Cancelling `ask` closes the connection before it returns.
* Retries (connection refused, 429, 5xx before the first byte; Retry-After honoured) happen inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from ferrule.core.events import ModelAnswered
from ferrule.core.frozen import frozen
from ferrule.core.messages import Message


@frozen
class ToolSpec:
    """A tool as the wire sends it. `wire_name` fits every provider; `schema` is compact JSON.

    `deferred` asks a provider with a tool search of its own to keep the schema back until a search
    found it (`Capabilities.tool_search`); other wires send it like any other, so who offers tools
    leaves it out there. `namespace` is what a provider that groups deferred tools shows it under;
    "" for none.
    """

    name: str
    wire_name: str
    description: str
    schema: str
    examples: tuple[Mapping[str, Any], ...] = ()
    deferred: bool = False
    namespace: str = ""

    @property
    def argument_examples(self) -> tuple[Mapping[str, Any], ...]:
        """The examples that are arguments alone. Those of the form `{"request", "arguments"}` say
        how people
        ask: they lead small models and would only lengthen a strong model's prompt.
        """
        return tuple(e for e in self.examples if set(e) != {"request", "arguments"})


@frozen
class Capabilities:
    """What a model can do, as yes / no / unknown (True / False / None), and who said so.

    `context` is the window in tokens. `source` names where the answer came from (`/api/show
    capabilities`, `/props chat_template_caps`, `template markers`, `provider table`, `live probe`).
    """

    tools: bool | None = None
    structured: bool | None = None
    context: int | None = None
    thinking: bool | None = None
    source: str = "unknown"
    tool_search: bool | None = None
    """Whether the provider searches deferred tools itself."""


@frozen
class ModelOptions:
    """What a person may set per model. None leaves the provider's default.

    `extra` is merged into the request as it is. `provider_tools` are hosted tools in the provider's
    own words (`models.hosted_tools`); a wire that has none raises ConfigError for them.
    `tool_search` is the variant (`bm25`, `regex`) of the provider's own tool search that deferred
    tools are found with; the engine sets it, where `Capabilities.tool_search` says so.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    num_ctx: int | None = None
    thinking: bool | str | None = None
    seed: int | None = None
    timeout: float = 600.0
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    provider_tools: tuple[Mapping[str, Any], ...] = ()
    tool_search: str = ""


class Sink(Protocol):
    """Where a model's words go while they arrive. Calls are quick and never raise."""

    def text(self, piece: str) -> None: ...

    def reasoning(self, piece: str) -> None: ...

    def notice(self, topic: str, text: str) -> None:
        """Something a person should know: a retry, a truncation, a fallback."""
        ...


class Exchange(Protocol):
    """One session's conversation with one model, encoded once.

    `notices` holds (topic, text) pairs of asks that had no sink; who drives the exchange takes and
    clears them.
    """

    notices: list[tuple[str, str]]

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """One answer. With `tools` False the model may not call any; `schema` forces the reply's
        JSON.

        Without a sink the wire may ask for the answer in one piece.
        """
        ...


class Wire(Protocol):
    """A model behind a provider's API."""

    @property
    def model(self) -> str:
        """The full name, `provider:model`."""
        ...

    async def capabilities(self) -> Capabilities:
        """Asked of the server once and kept. Raises ProviderError if it cannot be reached."""
        ...

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange:
        """A new conversation. No I/O. `tools` empty: none are sent."""
        ...

    async def close(self) -> None:
        """Give connections (or a local server) back. Safe to call twice."""
        ...
