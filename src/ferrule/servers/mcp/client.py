"""What a tool or a prompt of one's own may ask of the MCP client that it works for.

    async def greet(context: Context) -> str:
        client = client_of(context)
        name = (await client.elicit("Who are you?", {"name": {"type": "string"}}))["name"]

A tool that is called by somebody else (a model of ours, a person) has no client: `client_of`
raises. Answers are a stranger's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.tools.context import Context

from .blocks import Block, described
from .requests import Answers, Question, Request

UNDER_WAY: ContextVar[Mapping[str, Request] | None] = ContextVar(
    "ferrule_mcp_requests", default=None
)
"""The requests of the client for which the current task works, by the ids of their calls."""


def client_of(context: Context) -> Client:
    """The client that a call was made by. Raises ToolFailed where there is none."""
    request = (UNDER_WAY.get() or {}).get(context.call_id)
    if request is None:
        raise ToolFailed(ErrorType.NOT_FOUND, "this works only when it is called by an MCP client")
    return Client(request, context)


def elicitation(
    message: str, fields: Mapping[str, Mapping[str, Any]], required: Sequence[str] | None = None
) -> Question:
    """A question to the person at the client: a form with these fields (JSON Schemas of plain
    values), all required by default.

    The protocol forbids asking for secrets this way.
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
    """A question to the client's model. Few clients answer it, and the protocol gives it up."""
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [message], "maxTokens": max_tokens},
    }


def roots() -> Question:
    """A question for the folders that the client works in. Told, not granted: a tool's reach is the
    agent's workspace.
    """
    return {"method": "roots/list", "params": {}}


class Client:
    """One client, for the time of one request."""

    def __init__(self, request: Request, context: Context | None = None) -> None:
        self._request = request
        self._context = context

    def can(self, capability: str) -> bool:
        """Whether it can do `elicitation`, `sampling` or `roots`."""
        return self._request.peer.can(capability)

    async def ask(self, **questions: Question) -> Answers:
        """Put several questions at once, by name, and wait for all answers, in the protocol's JSON.

        Raises ToolFailed where the client cannot be asked, NoAnswer, TimeoutError.
        """
        return await self._request.ask(questions)

    async def elicit(
        self, message: str, fields: Mapping[str, Mapping[str, Any]], *, name: str = "answer"
    ) -> Mapping[str, Any]:
        """Ask the person at the client to fill in a form. Raises ToolFailed, also if they do
        not.
        """
        answer = (await self._request.ask({name: elicitation(message, fields)}))[name]
        if answer.get("action") != "accept":
            raise ToolFailed(ErrorType.CANCELLED, "the person at the client did not answer")
        found: Mapping[str, Any] = answer.get("content") or {}
        return found

    def log(self, level: str, said: str) -> None:
        """A line for the client's log (`debug`, `info`, `notice`, `warning`, `error`, ...), if it
        wants lines of this level.
        """
        self._request.peer.log(level, said, self._request.level)

    def show(self, block: Block) -> None:
        """Send a picture, sound or a resource (`blocks`) beside the result. The journal keeps what
        it was, not its bytes.
        """
        self._request.show(block)
        if self._context is not None:
            self._context.note("mcp", f"sent to the client beside the result: {described(block)}")

    async def release(self) -> bool:
        """Let the client's connection go while this works on; it comes back for the result. False
        where that is not possible.

        Only over HTTP in the version with a handshake.
        """
        return await self._request.peer.release()
