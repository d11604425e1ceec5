"""What your own tool or prompt may ask of the MCP client that called it.

    async def greet(context: Context) -> str:
        client = client_of(context)
        name = (await client.elicit("Who are you?", {"name": {"type": "string"}}))["name"]

A tool that is called by anyone else (one of our models, a person) has no client: `client_of`
raises. Answers are a stranger's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.tools.context import Context

from .blocks import Block, describe_block
from .requests import Answers, ClientRequest, Question

CURRENT_REQUESTS: ContextVar[Mapping[str, ClientRequest] | None] = ContextVar(
    "ferrule_mcp_requests", default=None
)
"""The requests of the client for which the current task works, by the ids of their calls."""


def client_of(context: Context) -> Client:
    """Return the client that made a call. Raises ToolFailed if there is none."""
    request = (CURRENT_REQUESTS.get() or {}).get(context.call_id)
    if request is None:
        raise ToolFailed(ErrorType.NOT_FOUND, "this works only when it is called by an MCP client")
    return Client(request, context)


def elicitation(
    message: str, fields: Mapping[str, Mapping[str, Any]], required: Sequence[str] | None = None
) -> Question:
    """Return a question to the person at the client: a form with these fields.

    The protocol forbids asking for secrets this way.

    Args:
        message: What the person is asked.
        fields: JSON Schemas of plain values, by name.
        required: Names of the fields that must be filled in. Default: all.
    """
    needed = list(fields) if required is None else list(required)
    schema = {
        "type": "object",
        "properties": {name: dict(one) for name, one in fields.items()},
        "required": needed,
    }
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def sampling(prompt: str, max_tokens: int = 1000) -> Question:
    """Return a question to the client's model. Few clients answer it; the protocol drops it."""
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [message], "maxTokens": max_tokens},
    }


def roots() -> Question:
    """Return a question for the folders that the client works in.

    The answer grants nothing: tools reach the agent's workspace only.
    """
    return {"method": "roots/list", "params": {}}


class Client:
    """One client, for the duration of one request."""

    def __init__(self, request: ClientRequest, context: Context | None = None) -> None:
        self._request = request
        self._context = context

    def can(self, capability: str) -> bool:
        """Return whether it supports `elicitation`, `sampling` or `roots`."""
        return self._request.peer.can(capability)

    async def ask(self, **questions: Question) -> Answers:
        """Ask several questions at once, by name, and wait for all answers in the protocol's JSON.

        Raises:
            ToolFailed: the client cannot be asked.
            NoAnswer: the client did not answer.
            TimeoutError: the answer took too long.
        """
        return await self._request.ask(questions)

    async def elicit(
        self, message: str, fields: Mapping[str, Mapping[str, Any]], *, name: str = "answer"
    ) -> Mapping[str, Any]:
        """Ask the person at the client to fill in a form.

        Raises:
            ToolFailed: the client cannot be asked, or the person declined.
        """
        answer = (await self._request.ask({name: elicitation(message, fields)}))[name]
        if answer.get("action") != "accept":
            raise ToolFailed(ErrorType.CANCELLED, "the person at the client did not answer")
        found: Mapping[str, Any] = answer.get("content") or {}
        return found

    def log(self, level: str, said: str) -> None:
        """Send a line to the client's log, if it wants lines of this level.

        Levels are `debug`, `info`, `notice`, `warning`, `error` and so on.
        """
        self._request.peer.log(level, said, self._request.level)

    def show(self, block: Block) -> None:
        """Send a picture, sound or a resource (`blocks`) beside the result.

        The journal keeps what it was, not its bytes.
        """
        self._request.show(block)
        if self._context is not None:
            self._context.note(
                "mcp", f"sent to the client beside the result: {describe_block(block)}"
            )

    async def release(self) -> bool:
        """Close the client's connection while this works on; it comes back for the result.

        Returns False if that is not possible. Only over HTTP, in the version with a handshake.
        """
        return await self._request.peer.release()
