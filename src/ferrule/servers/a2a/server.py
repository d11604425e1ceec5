"""Serve an agent with A2A: other agents send messages, follow tasks and answer questions.

    server = A2aServer(agent, name="Librarian", description="...", token=token, port=8321)
    await server.run()

Served are JSON-RPC at `/a2a` (`SendMessage`, `SendStreamingMessage`, `GetTask`, `CancelTask` and
others, and the methods of 0.3) and the agent card at its well-known path, which anyone who reaches
the server may read. Everything else needs the bearer token, on this machine too
(`runtime.http.http_security`). A context is a session of the agent, and a message in it is a run; a
call that needs approval makes the task wait for input (`conversations`). Calls pass the agent's own
gate and are journaled: a client has no more rights than the agent.

Tasks are kept in memory, the last `MAX_TASKS_KEPT` of them, and are gone with the process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from socket import socket
from typing import Any

from ferrule._version import __version__
from ferrule.core.calls import parse_json
from ferrule.core.errors import ProviderError
from ferrule.core.invisible_characters import escape_invisible
from ferrule.core.media import LoadedMedia, Media
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.engine.closed_by_with import ClosedByAsyncWith
from ferrule.engine.threads import run_blocking
from ferrule.runtime.http.http_security import Application, HttpGuard
from ferrule.runtime.http.server import accepted_hosts, public_address, serve
from ferrule.tools.media_types import MediaInvalid, detect_type

from .conversations import Conversations, Leave, Task, TaskRefused, TaskUpdate
from .signed_card import sign_card

CARD_PATH = "/.well-known/agent-card.json"
RPC_PATH = "/a2a"
MAX_TASKS_KEPT = 256
MAX_BODY = 48 * 1024 * 1024
"""Most bytes of a request: its parts can be pictures and documents in base64."""


_UNREAD = "[a file, which is not read]"
"""What stands in a message in place of a file by address, or of one for a task that runs."""
MAX_MEDIA_SENT = 16 * 1024 * 1024
"""Bytes of the media that follow an answer; what is more is named."""
_FILES = (
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/gif",
    "audio/wav",
    "application/pdf",
)


@frozen
class Skill:
    """A skill listed on the card. It is for readers only: all messages go to the same agent."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    """Words to find it by. The protocol requires at least one; without any, the id is used."""


class A2aServer(ClosedByAsyncWith):
    """One agent at one address.

    Args:
        agent: The agent to serve. It stays open for its owner.
        name: What the card calls it.
        description: What the card says about it.
        token: The bearer token clients must send.
        skills: The skills on the card.
        host: Where to listen. Anything but this machine needs an https `url`, because a token sent
            in the clear is no secret.
        port: Where to listen.
        url: How clients reach it, if not at `http://host:port` (for example a proxy with TLS).
        version: The version on the card.
        sign_key: Ed25519 key that signs the card (`signed_card`).
        leave: Closes a session, if more is needed than `Session.close`.

    `app` is the ASGI application, to be used in a server of your own.

    Raises:
        ConfigError: the address is not allowed, or the key cannot be used.
    """

    def __init__(  # noqa: PLR0913  public: each option of a server by its name
        self,
        agent: Agent[Any, Any],
        *,
        name: str,
        description: str,
        token: str,
        skills: Sequence[Skill] = (),
        host: str = "127.0.0.1",
        port: int = 8321,
        url: str = "",
        version: str = __version__,
        sign_key: Path | None = None,
        leave: Leave | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self.url = public_address(host, port, url)
        self.conversations = Conversations(agent, leave)
        self.card = build_card(
            name,
            description,
            skills or (_default_skill(description),),
            f"{self.url}{RPC_PATH}",
            version,
        )
        # Of a request that cannot be read the library would print tracebacks: its client has made
        # the mistake, and is told.
        logging.getLogger("a2a.server.routes").addHandler(logging.NullHandler())
        self.app: Application = HttpGuard(
            _application(self.conversations, self.card, sign_key),
            token=token,
            hosts=accepted_hosts(host, port, self.url),
            open_paths=[CARD_PATH],
            max_body=MAX_BODY,
        )

    async def run(self, listening: socket | None = None) -> int:
        """Serve until the process is told to end, then end and journal every task.

        Args:
            listening: An open socket to use (see `runtime.http.server`).

        Returns:
            The exit code.
        """
        try:
            return await serve(self.app, self._host, self._port, listening=listening)
        finally:
            await self.close()

    async def close(self) -> None:
        """End all tasks. The agent stays open."""
        await self.conversations.close()


def build_card(
    name: str, description: str, skills: Sequence[Skill], url: str, version: str
) -> dict[str, Any]:
    """Return the agent card, in the protocol's JSON."""
    listed = [
        {
            "id": one.id,
            "name": one.name,
            "description": one.description,
            "tags": list(one.tags) or [one.id],
        }
        for one in skills
    ]
    interfaces = [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version}
        for version in ("1.0", "0.3")
    ]
    return {
        "name": name,
        "description": description,
        "version": version,
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain", "application/json", *_FILES],
        "defaultOutputModes": ["text/plain", "application/json", *_FILES],
        "skills": listed,
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {}}}],
    }


def _default_skill(description: str) -> Skill:
    return Skill("ask", "Ask", description)


def _application(
    conversations: Conversations, card: dict[str, Any], sign_key: Path | None
) -> Application:
    """Build the protocol library's routes over the conversations."""
    _import_library()
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.types import AgentCard
    from a2a.utils.proto_utils import parse_lenient
    from starlette.applications import Starlette

    value = parse_lenient(card, AgentCard())
    if sign_key is not None:
        sign_card(value, sign_key)
    handler = DefaultRequestHandler(_executor_class()(conversations), _store_class()(), value)
    routes = create_jsonrpc_routes(handler, RPC_PATH, enable_v0_3_compat=True)
    return Starlette(routes=[*create_agent_card_routes(value), *routes])


def _import_library() -> None:
    """Import the protocol library for the first time in a thread of its own.

    It keeps the errors of its optional modules that are not installed. An error refers to the
    frames of all callers of the import, here to the agent, as long as the process lives.
    """
    with ThreadPoolExecutor(1) as executor:
        executor.submit(import_module, "a2a.server.routes").result()


@cache
def _store_class() -> Any:
    """Return the library's task store, bounded: the task written longest ago is deleted first."""
    from a2a.server.tasks import InMemoryTaskStore

    class Bounded(InMemoryTaskStore):
        def __init__(self) -> None:
            super().__init__()
            self._order: dict[str, Any] = {}

        async def save(self, task: Any, context: Any) -> None:
            await super().save(task, context)
            self._order.pop(task.id, None)
            self._order[task.id] = context
            if len(self._order) > MAX_TASKS_KEPT:
                oldest = next(iter(self._order))
                await self.delete(oldest, self._order.pop(oldest))

    return Bounded


@cache
def _executor_class() -> Any:
    """Return the class that the library calls to work, made once the library is needed."""
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.tasks import TaskUpdater
    from a2a.types import Task as RemoteTask
    from a2a.types import TaskState, TaskStatus

    class Executor(AgentExecutor):
        def __init__(self, conversations: Conversations) -> None:
            self._conversations = conversations

        async def execute(self, context: Any, event_queue: Any) -> None:
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            if context.current_task is None:
                begun = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
                await event_queue.enqueue_event(
                    RemoteTask(id=context.task_id, context_id=context.context_id, status=begun)
                )
            try:
                task = await _find_or_start_task(self._conversations, context)
            except TaskRefused as error:
                await updater.reject(_agent_message(updater, str(error)))
                return
            while True:
                update = await task.updates.get()
                await _send_update(updater, update, _accepted_types(context))
                if update.kind != "words":
                    break
            if update.kind != "question":
                self._conversations.forget_task(context.task_id)

        async def cancel(self, context: Any, event_queue: Any) -> None:
            await self._conversations.cancel_task(context.task_id)
            await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    return Executor


async def _find_or_start_task(conversations: Conversations, context: Any) -> Task:
    """Return the task that a message is for.

    Raises TaskRefused if it has ended, or if a file of the message is nothing that models take.
    """
    parts = _read_parts(context)
    text = "\n".join(part if isinstance(part, str) else _UNREAD for part in parts)
    known = conversations.find_task(context.task_id)
    if known is not None:
        known.receive(text)
        return known
    if context.current_task is not None:
        raise TaskRefused("this task has ended; send a message without a task id")
    has_files = any(isinstance(part, Media) for part in parts)
    message = parts if has_files else text
    return await conversations.start_task(context.task_id, context.context_id, message)


def _accepted_types(context: Any) -> Sequence[str]:
    """Return the media types that the client of a message takes; none: it takes all."""
    configuration = context.configuration
    return () if configuration is None else list(configuration.accepted_output_modes)


async def _send_update(updater: Any, update: TaskUpdate, accepted: Sequence[str]) -> None:
    """Tell the client what happened to its task."""
    from a2a.types import Part

    message = _agent_message(updater, update.text)
    match update.kind:
        case "words":
            await updater.start_work(message)
        case "question":
            await updater.requires_input(message)
        case "done":
            part = _value_part(update.text) if update.is_value else Part(text=update.text)
            await updater.add_artifact([part], name="answer")
            media = await run_blocking(lambda: _media_parts(update.media, accepted))
            if media:
                await updater.add_artifact(media, name="media")
            await updater.complete()
        case "failed":
            await updater.failed(message)
        case "canceled":
            await updater.cancel(message)


def _media_parts(media: Sequence[LoadedMedia], accepted: Sequence[str]) -> list[Any]:
    """Return media as parts: by their bytes, or as a caption where these are too many or gone."""
    from a2a.types import Part

    parts: list[Any] = []
    left = MAX_MEDIA_SENT
    for one in media:
        if accepted and not any(fnmatchcase(one.mime, kind) for kind in accepted):
            continue
        left -= one.size
        if left < 0:
            parts.append(Part(text=one.describe()))
            continue
        try:
            data = one.load()
        except ProviderError:
            parts.append(Part(text=one.describe()))
            continue
        parts.append(Part(raw=data, media_type=one.mime, filename=one.name))
    return parts


def _value_part(text: str) -> Any:
    """Return JSON as a part that is data; as text where the protocol's numbers would change it."""
    from a2a.types import Part
    from google.protobuf.json_format import MessageToDict, Parse
    from google.protobuf.struct_pb2 import Value

    data = Parse(text, Value())
    if MessageToDict(data) == parse_json(text):
        return Part(data=data)
    return Part(text=text, media_type="application/json")


def _agent_message(updater: Any, text: str) -> Any:
    from a2a.types import Part

    return updater.new_agent_message([Part(text=text)])


def _read_parts(context: Any) -> list[str | Media]:
    """Return a message's texts, its data values as JSON, and its files. Raises TaskRefused."""
    from google.protobuf.json_format import MessageToDict

    found: list[str | Media] = []
    for part in context.message.parts if context.message else ():
        if part.HasField("text"):
            found.append(part.text)
        elif part.HasField("data"):
            found.append(json.dumps(MessageToDict(part.data)))
        elif part.HasField("raw"):
            found.append(_read_file(part.raw, part.filename))
        else:
            found.append(_UNREAD)
    return found


def _read_file(data: bytes, name: str) -> Media:
    try:
        detect_type(data, f"the file `{escape_invisible(name)[:100]}`")
    except MediaInvalid as error:
        raise TaskRefused(str(error)) from error
    return Media(data, name=name.replace("\\", "/").rpartition("/")[2][:100])
