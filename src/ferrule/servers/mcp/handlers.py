"""The protocol's methods, on the official library's server.

The library speaks both versions of the protocol; this module implements the methods. A client's
tool calls go through its session's dispatcher and nowhere else. State that travels through a client
(`requestState`) is sealed: encrypted, valid for a limited time, and only for the client, the
method, the name and the arguments that it was made for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ferrule.core.errors import ConfigError, FerruleError, ToolFailed
from ferrule.engine.served_tools import find_served_tool, list_served_tools
from ferrule.runtime.hidden_errors import log_hidden_error
from ferrule.tools.definition import Tool

from . import artifacts
from .client import Client
from .offers import Offers, resolve, to_messages
from .peer import ANSWER_SECONDS, LEVELS, RequestPeer
from .plain_calls import KnownClient, PlainCalls, PlainRequest
from .requests import Answers, ClientRequest
from .results import find_reference, to_block, to_call_result
from .sessions import ClientIdentity, ClientSession, ClientSessions
from .tool_list import PAGE_SIZE, tool_to_json

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
else:
    Server = Any

LIST_TTL = 60_000
"""Milliseconds a listing may be cached. It changes rarely, and then clients are told."""
ARTIFACT_TTL = 3_600_000
"""Milliseconds an artifact may be cached. The content behind its address never changes."""


@dataclass(slots=True)
class Service:
    """What is served, and to whom.

    `name`, `version`, `title` and `instructions` are what clients are told about the server.
    """

    sessions: ClientSessions
    offers: Offers
    name: str
    version: str
    title: str = ""
    instructions: str = ""
    connection: Callable[[Any], ClientIdentity | None] = field(default=lambda context: None)
    """Returns the client that a request's connection belongs to, if known without its name."""
    plain_calls: PlainCalls = field(default_factory=PlainCalls)
    """Calls that began without the library, and the clients that can make them."""

    # ---- whose request it is

    def session_of(self, peer: RequestPeer, context: Any) -> ClientSession:
        """Return the session of the client that sent a request. Raises MCPError."""
        who = self.identify(peer, context)
        try:
            visit = self.sessions.session_for(
                who, f"client `{peer.name}`, protocol {peer.version}, {who.key[0]}"
            )
        except FerruleError as error:
            raise failure_error(error.detail) from error
        if not peer.is_modern:
            visit.outlet = peer.outlet
        return visit

    def identify(self, peer: RequestPeer, context: Any) -> ClientIdentity:
        """Return which client sent a request."""
        found = self.connection(context)
        if found is None:
            return ClientIdentity(("named", peer.name), f"mcp:{peer.name}", is_exclusive=False)
        return ClientIdentity(
            (*found.key, peer.name),
            found.user or f"mcp:{peer.name}",
            found.tenant,
            found.is_exclusive,
        )

    def close_connection(self, key: tuple[str, ...]) -> None:
        """Close the sessions of a connection that ended, in the background."""
        self.plain_calls.forget(key)
        self.sessions.close_client(key)

    async def end_connection(self, key: tuple[str, ...]) -> None:
        """Close the sessions of a connection that ended, and wait: their calls are journaled."""
        self.plain_calls.forget(key)
        await self.sessions.end_client(key)

    # ---- tools

    async def list_tools(self, context: Any, params: Any) -> dict[str, Any]:
        """Handle `tools/list`."""
        peer = RequestPeer(context)
        session = self.session_of(peer, context).session
        tools = list(list_served_tools(session).items())
        page, more = _page(tools, params)
        return {
            "tools": [tool_to_json(name, tool, modern=peer.is_modern) for name, tool in page],
            **more,
        }

    async def call_tool(self, context: Any, params: Any) -> dict[str, Any]:
        """Handle `tools/call`: run the tool in the client's session and answer with its result."""
        peer = RequestPeer(context)
        visit = self.session_of(peer, context)
        if (begun := self.plain_calls.take(visit, context.request_id)) is not None:
            begun.take_over(peer)
            return await self._answer(begun, visit)
        tool = find_served_tool(visit.session, params.name)
        if tool is None:
            # The same answer for tools that exist and are not served, so no one learns of them.
            visit.session.add_notice(
                "mcp", f"asked for a tool that is not served: {params.name[:200]!r}", flush=True
            )
            raise invalid_error(f"Unknown tool: {params.name[:200]}")
        self.plain_calls.remember(visit, peer)
        work = self.prepare_call(visit, tool, params.arguments or {})
        return await self._work_on(peer, visit, params, work)

    def begin_plain_call(self, known: KnownClient, request: PlainRequest) -> ClientRequest | None:
        """Start a call without the library; None if it must see the request."""
        visit = known.visit
        if self.sessions.pool.use(visit.identity.key) is not visit:
            return None
        tool = find_served_tool(visit.session, request.name)
        if tool is None:
            return None
        try:
            work = self.prepare_call(visit, tool, request.arguments)
            return self.plain_calls.begin(known, request, work)
        except FerruleError:
            return None

    def prepare_call(
        self, visit: ClientSession, tool: Tool, arguments: Mapping[str, Any]
    ) -> Callable[[ClientRequest], Coroutine[Any, Any, dict[str, Any]]]:
        """Return the work of a request that calls a tool in the client's session."""

        async def work(request: ClientRequest) -> dict[str, Any]:
            catalog = visit.session.catalog
            before = catalog.version
            result = await visit.call_tool(tool.full_name, arguments)
            if catalog.version != before:
                # Only this client sees a session's own catalog; all clients share the agent's.
                await self.notify_list_changed(
                    "tools", None if catalog is self.sessions.agent.catalog else visit
                )
            links = (
                await artifacts.artifact_links(visit, find_reference(result))
                if result.success
                else []
            )
            media = [to_block(one, visit.session.history.read_media(one)) for one in result.media]
            # The peer of the current exchange, which may not be the first one.
            return to_call_result(
                result,
                tool,
                modern=request.peer.is_modern,
                shown=[*media, *request.shown_blocks],
                links=links,
            )

        return work

    def tool_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's arguments, for headers that repeat some of them."""
        tool = self.sessions.agent.catalog.get(name)
        return None if tool is None else tool.arguments.schema

    # ---- requests that may take several exchanges

    async def _work_on(
        self,
        peer: RequestPeer,
        visit: ClientSession,
        params: Any,
        work: Callable[[ClientRequest], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Answer a request with the result of its work, or with what its client is asked."""
        answers = _answers(params)
        if params.request_state is None:
            request = self._begin(peer, visit, answers, work)
        else:
            found = visit.suspended.take(params.request_state)
            if found is None or found.is_done:
                raise invalid_error(
                    "Invalid or expired requestState", {"reason": "invalid_request_state"}
                )
            request = found
            request.resume(peer, answers)
        return await self._answer(request, visit)

    async def _answer(self, request: ClientRequest, visit: ClientSession) -> dict[str, Any]:
        """Wait for a request, and return the result of its work or what its client is asked."""
        questions = await request.wait()
        if questions is not None:
            state = visit.suspended.keep(request)
            if state is None:
                await request.stop()
                raise failure_error("too many requests wait for this client")
            return {
                "resultType": "input_required",
                "inputRequests": dict(questions),
                "requestState": state,
            }
        return self._outcome(request)

    def _begin(
        self, peer: RequestPeer, visit: ClientSession, answers: Answers, work: Any
    ) -> ClientRequest:
        """Start the work of a request. Raises MCPError if too many are in progress."""
        try:
            return visit.start_request(peer, answers, work)
        except FerruleError as error:
            raise failure_error(error.detail) from error

    def _outcome(self, request: ClientRequest) -> dict[str, Any]:
        """Return the result of a request's work; raise MCPError for what went wrong."""
        try:
            answer: dict[str, Any] = request.outcome()
        except asyncio.CancelledError:
            # Ended by the server: a client that cancels its request does not get here.
            raise failure_error("the server cancelled this request") from None
        except FerruleError as error:
            log_hidden_error("mcp", error)
            raise failure_error(f"the request failed ({error.code})") from error
        except ToolFailed as error:
            known = request.lacking_capability and request.peer.is_modern
            raise (
                lacking_error(request.lacking_capability) if known else invalid_error(error.message)
            ) from error
        if request.lacking_capability and request.peer.is_modern and answer.get("isError"):
            raise lacking_error(request.lacking_capability)
        return answer

    # ---- prompts and resources

    async def list_prompts(self, context: Any, params: Any) -> dict[str, Any]:
        page, more = _page(self.offers.prompts, params)
        return {"prompts": [one.to_json() for one in page], **more}

    async def get_prompt(self, context: Any, params: Any) -> dict[str, Any]:
        peer = RequestPeer(context)
        prompt = self.offers.prompt(params.name)
        if prompt is None:
            raise invalid_error(f"Unknown prompt: {params.name[:200]}")
        arguments: dict[str, str] = params.arguments or {}
        if problems := prompt.find_problems(arguments):
            raise invalid_error("; ".join(problems))

        async def work(request: ClientRequest) -> dict[str, Any]:
            said = await resolve(prompt.get(Client(request), **arguments))
            return {"description": prompt.description, "messages": to_messages(said)}

        return await self._work_on(peer, self.session_of(peer, context), params, work)

    async def list_resources(self, context: Any, params: Any) -> dict[str, Any]:
        kept = await artifacts.list_artifacts(self.session_of(RequestPeer(context), context))
        page, more = _page([*(one.to_json() for one in self.offers.resources), *kept], params)
        return {"resources": page, **more}

    async def list_templates(self, context: Any, params: Any) -> dict[str, Any]:
        kept = (
            [artifacts.TEMPLATE]
            if artifacts.can_read(self.session_of(RequestPeer(context), context))
            else []
        )
        page, more = _page([*(one.to_json() for one in self.offers.templates), *kept], params)
        return {"resourceTemplates": page, **more}

    async def read_resource(self, context: Any, params: Any) -> dict[str, Any]:
        uri = str(params.uri)
        if not uri.startswith(f"{artifacts.SCHEME}:"):
            found = await self.offers.read(uri)
            if found is None:
                raise self._no_resource(context, uri)
            return {"contents": [found]}
        peer = RequestPeer(context)
        visit = self.session_of(peer, context)
        if not artifacts.can_read(visit):
            raise self._no_resource(context, uri)

        async def work(request: ClientRequest) -> dict[str, Any]:
            try:
                return {
                    "contents": [await artifacts.read_artifact(visit, uri)],
                    "ttlMs": ARTIFACT_TTL,
                    "cacheScope": "private",
                }
            except artifacts.UnreadableArtifact as error:
                raise self._no_resource(context, uri, str(error)) from error

        return await self._work_on(peer, visit, params, work)

    def _no_resource(self, context: Any, uri: str, why: str = "resource not found") -> Exception:
        from mcp.shared.exceptions import MCPError

        code = -32602 if RequestPeer(context).is_modern else -32002
        return MCPError(code, why[:1].upper() + why[1:], {"uri": uri[:2_000]})

    async def complete(self, context: Any, params: Any) -> dict[str, Any]:
        reference: dict[str, Any] = params.ref.model_dump(
            by_alias=True, mode="json", exclude_none=True
        )
        return await self.offers.complete_argument(
            reference, params.argument.name, params.argument.value
        )

    # ---- news

    async def subscribe(self, context: Any, params: Any) -> dict[str, Any]:
        try:
            self.session_of(RequestPeer(context), context).subscribe(str(params.uri))
        except FerruleError as error:
            raise failure_error(error.detail) from error
        return {}

    async def unsubscribe(self, context: Any, params: Any) -> dict[str, Any]:
        self.session_of(RequestPeer(context), context).subscribed.discard(str(params.uri))
        return {}

    async def listen(self, context: Any, params: Any) -> Any:
        from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

        visit = self.session_of(RequestPeer(context), context)
        if visit.listening is None:
            bus = InMemorySubscriptionBus()
            visit.listening = bus, ListenHandler(bus, max_subscriptions=8, max_buffered_events=64)
        return await visit.listening[1](context, params)

    async def notify_list_changed(self, what: str, visit: ClientSession | None = None) -> None:
        """Tell all clients (or one) that a list changed: `tools`, `prompts` or `resources`."""
        import mcp_types as types
        from mcp.server import subscriptions

        notes = {
            "tools": (types.ToolListChangedNotification, subscriptions.ToolsListChanged),
            "prompts": (types.PromptListChangedNotification, subscriptions.PromptsListChanged),
            "resources": (
                types.ResourceListChangedNotification,
                subscriptions.ResourcesListChanged,
            ),
        }
        note, event = notes[what]
        for one in self.sessions if visit is None else (visit,):
            await self._notify(one, note(), event())

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to a resource that it changed."""
        import mcp_types as types
        from mcp.server.subscriptions import ResourceUpdated

        params = types.ResourceUpdatedNotificationParams(uri=uri)
        for one in self.sessions:
            note = (
                types.ResourceUpdatedNotification(params=params) if uri in one.subscribed else None
            )
            await self._notify(one, note, ResourceUpdated(uri=uri))

    async def _notify(self, visit: ClientSession, note: Any, event: Any) -> None:
        if visit.outlet is not None and note is not None:
            await visit.outlet.send_notification(note)
        if visit.listening is not None:
            await visit.listening[0].publish(event)

    async def set_level(self, context: Any, params: Any) -> dict[str, Any]:
        if params.level in LEVELS:
            self.session_of(RequestPeer(context), context).level = params.level
        return {}

    def end_subscriptions(self) -> None:
        """End all subscriptions, with a last message."""
        for one in self.sessions:
            if one.listening is not None:
                one.listening[1].close()


def require_library() -> None:
    """Raise ConfigError if the protocol library is not installed."""
    try:
        import mcp.server.lowlevel.server as _  # noqa: F401  asked for
    except ImportError as error:
        raise ConfigError(
            "serving by MCP needs the protocol's library", hint='pip install "ferrule[mcp]"'
        ) from error


def build_server(service: Service) -> Server[Any]:
    """Build the library's server with these methods."""
    from mcp.server.caching import CacheHint
    from mcp.server.lowlevel.server import NotificationOptions, Server
    from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

    class Ours(Server[Any]):
        def create_initialization_options(
            self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
        ) -> Any:
            changing = notification_options or NotificationOptions(
                bool(service.offers.prompts), True, True
            )
            return super().create_initialization_options(changing, *args, **more)

    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    hints: dict[Any, CacheHint] = {name: CacheHint(LIST_TTL) for name in lists}
    server = Ours(
        service.name,
        version=service.version,
        title=service.title or None,
        instructions=service.instructions or None,
        cache_hints={**hints, "resources/read": CacheHint()},
        get_tool_input_schema=service.tool_schema,
    )
    for method, params, handler in _methods(service):
        server.add_request_handler(method, params, _mark_complete(handler))
    sealed = RequestStateSecurity(
        keys=[os.urandom(32)],
        ttl=ANSWER_SECONDS,
        bind_principal=lambda context: "\n".join(
            service.identify(RequestPeer(context), context).key
        ),
    )
    server.middleware.append(RequestStateBoundary(sealed, default_audience=service.name))
    return server


def _mark_complete(
    handler: Callable[[Any, Any], Awaitable[Any]],
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Mark answers as complete, which only the newer version of the protocol knows."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    async def answer_request(context: Any, params: Any) -> Any:
        answer: Any = await handler(context, params)
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if modern and isinstance(answer, Mapping):
            return {"resultType": "complete", **cast("Mapping[str, Any]", answer)}
        return answer

    return answer_request


def _methods(service: Service) -> list[tuple[str, Any, Any]]:
    """Return each method with its parameter type and handler.

    Only supported methods are listed, because clients learn from this what there is.
    """
    import mcp_types as types

    paged = types.PaginatedRequestParams
    offers = service.offers
    methods: list[tuple[str, Any, Any]] = [
        ("tools/list", paged, service.list_tools),
        ("tools/call", types.CallToolRequestParams, service.call_tool),
        ("resources/list", paged, service.list_resources),
        ("resources/templates/list", paged, service.list_templates),
        ("resources/read", types.ReadResourceRequestParams, service.read_resource),
        ("resources/subscribe", types.SubscribeRequestParams, service.subscribe),
        ("resources/unsubscribe", types.UnsubscribeRequestParams, service.unsubscribe),
        ("subscriptions/listen", types.SubscriptionsListenRequestParams, service.listen),
    ]
    if offers.prompts:
        methods.append(("prompts/list", paged, service.list_prompts))
        methods.append(("prompts/get", types.GetPromptRequestParams, service.get_prompt))
    if offers.complete is not None:
        methods.append(("completion/complete", types.CompleteRequestParams, service.complete))
    if offers.logging:
        methods.append(("logging/setLevel", types.SetLevelRequestParams, service.set_level))
    return methods


def invalid_error(why: str, data: Any = None) -> Exception:
    """Return the protocol's error for invalid parameters."""
    from mcp.shared.exceptions import MCPError

    return MCPError(-32602, why, data)


def failure_error(why: str) -> Exception:
    """Return the protocol's error for a failure on this side."""
    from mcp.shared.exceptions import MCPError

    return MCPError(-32603, why)


def lacking_error(capability: str) -> Exception:
    """Return the protocol's error for a client that lacks a required capability."""
    from mcp.shared.exceptions import MCPError

    return MCPError(
        -32021, f"this needs `{capability}`", {"requiredCapabilities": {capability: {}}}
    )


def _answers(params: Any) -> Answers:
    given: Mapping[str, Any] = params.input_responses or {}
    return {
        name: one.model_dump(by_alias=True, mode="json", exclude_none=True)
        for name, one in given.items()
    }


def _page(items: Sequence[Any], params: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return a page of a list and the cursor of the next. Raises MCPError for a bad cursor."""
    cursor = getattr(params, "cursor", None)
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise invalid_error("unknown cursor")
    begin = int(cursor or 0)
    end = begin + PAGE_SIZE
    return items[begin:end], {"nextCursor": str(end)} if end < len(items) else {}
