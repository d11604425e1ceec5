"""The protocol between the engine and a model. A provider is a class that fulfils `ModelClient`.

A model client opens one `Exchange` per session. The exchange encodes each message once and keeps
its bytes; on every turn it sends the stable prefix (system text, tools, earlier messages) and what
is new.

The contract, tested by `ferrule.testing.model_client_conformance`:

* `ask` sends `history` unchanged. Between two calls the history only grows. `ask` returns one
  complete `ModelAnswered` or raises `ProviderError`, never an exception of a library.
* Text goes to the sink in the order in which it arrives; the pieces joined are the answer's text.
* Deltas may be split at any byte. Calls are merged by index or id, in order of first appearance.
  Missing ids stay empty; the engine assigns them. Arguments given as an object become compact
  JSON; a string is kept unchanged, even if it is broken.
* A call that was cut off is returned incomplete with `stop="length"`. Nothing is guessed.
* Cancelling `ask` closes the connection before it returns.
* The client retries (connection refused, 429, 5xx before the first byte) and honours Retry-After.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message
from ferrule.core.value_class import frozen, options

ToolModeOption = Literal["auto", "native", "constrained", "text", "commands"]
"""A tool mode that is forced, or `auto`: chosen by what the model can do."""

OutputModeOption = Literal["auto", "schema", "tool", "grammar", "prompt"]
"""How a model is held to an output type (`models.output_modes`); `auto` chooses."""

ModelMaker = Literal["", "Anthropic", "OpenAI"]
"""Who made the models that a provider serves, if their names tell which options they refuse."""


@frozen
class ToolSpec:
    """A tool as it is offered to a model.

    `api_name` is the name that is sent; it fits every provider. `schema` is compact JSON.
    `deferred` asks a provider with its own tool search to withhold the schema until a search finds
    the tool (`Capabilities.tool_search`). Other clients send a deferred tool like any other, so the
    caller leaves it out for them. `namespace` is the group under which such a provider shows
    deferred tools, or "". `provider_type` is the type that a provider's API has for this tool; its
    client sends that in place of the schema. `side_effect` is what the tool declares (`none`,
    `read`, `write`, `execute`, `external`), or "" if it declares nothing; no request contains it.
    """

    name: str
    api_name: str
    description: str
    schema: str
    examples: tuple[Mapping[str, Any], ...] = ()
    deferred: bool = False
    namespace: str = ""
    provider_type: str = ""
    side_effect: str = ""

    @property
    def argument_examples(self) -> tuple[Mapping[str, Any], ...]:
        """The examples that are plain arguments.

        Examples of the form `{"request", "arguments"}` show how people ask. They help small models
        and would only lengthen the prompt of a strong one.
        """
        return tuple(e for e in self.examples if set(e) != {"request", "arguments"})


@frozen
class Capabilities:
    """What a model can do: True, False, or None for unknown; and where the answer came from.

    `context` is the context window in tokens. `source` names where the answer came from
    (`/api/show capabilities`, `/props chat_template_caps`, `template markers`, `provider table`,
    `live probe`).
    """

    tools: bool | None = None
    structured: bool | None = None
    context: int | None = None
    thinking: bool | None = None
    source: str = "unknown"
    tool_search: bool | None = None
    """Whether the provider searches deferred tools itself."""
    structured_with_tools: bool | None = None
    """Whether a schema for the reply may stand beside tools that the model can still call."""
    vision: bool | None = None
    """Whether the model sees pictures."""


@options
class ModelOptions:
    """Settings of one model. None, or nothing in a collection, leaves the provider's default.

    What a provider's API does not have is refused with ConfigError when a conversation is opened
    (`models.registry`); its row in `models.registry` says what it has.

    Attributes:
        temperature: How freely the model picks its words.
        max_tokens: Most tokens of an answer.
        num_ctx: The context window in tokens; Ollama sets it, for others it says how large it is.
        thinking: How much the model reasons before it answers: a level (`low`, `medium`, `high`,
            or what the provider calls them), or whether it does at all.
        seed: Makes answers repeatable, as far as the provider can.
        top_p: The share of likely words that are picked from.
        presence_penalty: Lowers the odds of words that were used.
        frequency_penalty: Lowers the odds of words by how often they were used.
        timeout: Seconds that an answer may take.
        extra: Members of the request in the provider's own format, merged into it unchanged.
        provider_tools: Hosted tools in the provider's own format (`models.hosted_tools`).
        tool_search: The variant (`bm25`, `regex`) of the provider's tool search for deferred tools;
            the engine sets it where `Capabilities.tool_search` is true.
        cached_content: The name of what Gemini has stored in place of system text and tools.
        stop: Texts that end an answer.
        top_k: The number of likely words that are picked from.
        logit_bias: Added to the odds of tokens, by their numbers in the model's vocabulary.
        service_tier: How urgent requests are, in the provider's words (`flex`, `priority`).
        cache_key: Leads requests that start alike to the same prompt cache.
        cache_control: How long what is marked for the prompt cache stays there (`5m`, `1h`), where
            only what is marked is kept. For Anthropic's API it takes the place of the client's.
        upload_media_from: The bytes from which a picture, sound or document is uploaded once and
            named by its id, where the provider keeps files; None: all are in each request.
    """

    unknown_hint: ClassVar[str] = "what only one provider has goes into `extra={...}`"

    temperature: float | None = None
    max_tokens: int | None = None
    num_ctx: int | None = None
    thinking: bool | str | None = None
    seed: int | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    timeout: float = 600.0
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    provider_tools: tuple[Mapping[str, Any], ...] = ()
    tool_search: str = ""
    cached_content: str = ""
    stop: tuple[str, ...] = ()
    top_k: int | None = None
    logit_bias: Mapping[str, float] = field(default_factory=dict[str, float])
    service_tier: str = ""
    cache_key: str = ""
    cache_control: str = ""
    upload_media_from: int | None = None


class Sink(Protocol):
    """Receives an answer while it arrives. Its methods return quickly and never raise."""

    def add_text(self, piece: str) -> None:
        """Receive a piece of the answer's text."""
        ...

    def add_reasoning(self, piece: str) -> None:
        """Receive a piece of the model's reasoning."""
        ...

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        """Receive a piece of a call's arguments, as JSON text. Nothing of it is checked.

        Args:
            call: Tells the calls of one answer apart.
            tool: The name of the tool, as far as it has arrived.
            piece: The piece.
        """
        ...

    def notice(self, topic: str, text: str) -> None:
        """Report something a person should know: a retry, a truncation, a fallback."""
        ...


def choose_notice(sink: Sink | None, notices: list[tuple[str, str]]) -> Callable[[str, str], None]:
    """Return what takes the notices of a question: its sink, or a list if it has none."""
    return sink.notice if sink else lambda topic, text: notices.append((topic, text))


class Exchange(Protocol):
    """One session's conversation with one model, encoded once.

    `notices` holds the (topic, text) pairs of questions asked without a sink. Whoever drives the
    exchange reads and clears it.
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
        """Ask the model for one answer.

        Args:
            history: The whole conversation so far.
            tools: Whether the model may call tools.
            schema: JSON schema that the reply must fit.
            sink: Receives the answer while it arrives. Without one, the client may request the
                answer in one piece.
        """
        ...


class ModelClient(Protocol):
    """A client of one model behind a provider's API."""

    @property
    def model(self) -> str:
        """The full name, `provider:model`."""
        ...

    async def capabilities(self) -> Capabilities:
        """Return what the model can do. The server is asked once.

        Raises:
            ProviderError: The server cannot be reached.
        """
        ...

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange:
        """Open a new conversation, without I/O. If `tools` is empty, none are sent."""
        ...

    async def close(self) -> None:
        """Release the connections (or the local server). Safe to call twice."""
        ...


@runtime_checkable
class GoesOnAfterDisconnect(Protocol):
    """A client whose `close` also checks something that is known only when all runs are over."""

    async def disconnect(self) -> None:
        """Release what belongs to this event loop; the client is asked again in another one."""
        ...


async def disconnect(client: ModelClient) -> None:
    """Release the connections of a client that may be asked again, in another event loop."""
    if isinstance(client, GoesOnAfterDisconnect):
        await client.disconnect()
    else:
        await client.close()


@frozen
class Offer:
    """What a conversation with a model is opened with. Layers pass it on, perhaps changed.

    Attributes:
        client: The client of the model that is asked.
        system: The system text.
        tools: The tools that are offered.
        options: How the model is asked.
        tool_mode: How it calls tools; `auto` chooses.
        gained: Tools that the session has gained, which are offered behind all others.
    """

    client: ModelClient
    system: str
    tools: tuple[ToolSpec, ...]
    options: ModelOptions
    tool_mode: str = "auto"
    gained: tuple[ToolSpec, ...] = ()


Open = Callable[[Offer], Awaitable[Exchange]]
"""Opens a conversation with a model."""


class ToolModeOpener(Protocol):
    """Opens conversations in one tool mode."""

    def __call__(
        self,
        client: ModelClient,
        system: str,
        tools: Sequence[ToolSpec],
        options: ModelOptions,
        /,
    ) -> Exchange:
        """Open a conversation, without I/O. `tools` is not empty."""
        ...


def tool_mode_of(exchange: Exchange | None) -> str:
    """Return the tool mode that an exchange is in now; "" if it does not say.

    An exchange that wraps another one has it as `inner`.
    """
    while exchange is not None:
        tool_mode = getattr(exchange, "tool_mode", "")
        if tool_mode:
            return tool_mode
        exchange = getattr(exchange, "inner", None)
    return ""


@runtime_checkable
class HasToolModes(Protocol):
    """A model client with tool modes that are not those of `models.tool_modes`.

    A plug-in that helps one kind of model is attached to its client this way.
    """

    @property
    def tool_modes(self) -> Mapping[str, ToolModeOpener]:
        """What opens the client's conversations, by the name of the tool mode."""
        ...


@frozen
class ToolBounds:
    """What a provider takes of tools in one request; None where that is not known.

    Attributes:
        tools: Number of tools.
        description: Characters of one tool's description.
    """

    tools: int | None = None
    description: int | None = None
