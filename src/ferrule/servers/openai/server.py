"""The endpoint: `POST /v1/chat/completions`, `GET /v1/models`, `GET /v1/models/{id}`.

    server = OpenAiServer(assembly, token=token, port=8330)
    await server.run()

The HTTP guard with its token is in front of it. At most `at_once` requests of one person are worked
on at a time, and `work_limits.IN_ALL` of everybody; another one is answered with 429 before any of
it is done. Bodies are limited in size, and so is everything kept between requests
(`conversations`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.core.errors import FerruleError
from ferrule.engine.session import Session
from ferrule.models.client import ModelOptions
from ferrule.runtime.assemble import Assembly
from ferrule.runtime.http.endpoint import Access, HttpEndpoint, find_route_problem, send_json
from ferrule.runtime.http.http_security import Receive, Scope, Send, Visitor, route_path
from ferrule.runtime.http.work_limits import OF_ONE_PERSON, find_refusal
from ferrule.storage.locations import create_artifact_store

from .agents import AgentRunner, check_agent_request
from .answer_parts import AnswerEnd, Emit, Work
from .errors import RequestRefused, send_refusal, shape_errors, to_refusal
from .model_relay import ModelRelay
from .models import ModelChoice, OfferedModels
from .requests import ChatRequest, parse_request
from .responses import ChatReply

MAX_BODY = 48 * 1024 * 1024
"""Most bytes of a request."""
CHAT = "/v1/chat/completions"
LIST = "/v1/models"
_ROUTES = {CHAT: "POST", LIST: "GET", f"{LIST}/": "GET"}


class OpenAiServer(HttpEndpoint):
    """One assembly at one address.

    Args:
        assembly: The agent with its settings. It stays open for its owner.
        token: The single token, or the user of each token: then every user has sessions of their
            own. Inside another application: how that one signs people in.
        offers: Models besides the assembly's own that the agent works with if a client asks for it.
        direct: Models that clients may ask without the agent: no rule, hook or budget applies, and
            nothing is journaled.
        yes_to: Patterns of tools that need no approval.
        host: Where to listen.
        port: Where to listen.
        url: How clients reach it, if not at `http://host:port`.
        at_once: Requests of one person worked on at a time.

    `app` is the ASGI application, for a server of your own.

    Raises:
        ConfigError: the address cannot be used.
    """

    def __init__(  # noqa: PLR0913  each option of the server by its name
        self,
        assembly: Assembly,
        *,
        token: Access,
        offers: Iterable[str] = (),
        direct: Iterable[str] = (),
        yes_to: tuple[str, ...] = (),
        host: str = "127.0.0.1",
        port: int = 8330,
        url: str = "",
        at_once: int = OF_ONE_PERSON,
    ) -> None:
        self._assembly = assembly
        self.models = OfferedModels(assembly, offers, direct, named=not isinstance(token, str))
        where, most, days = (
            assembly.settings[f"artifacts.{key}"] for key in ("store", "max_bytes", "days")
        )
        self._agents = AgentRunner(
            self._leave, create_artifact_store(where, max_bytes=most, days=days), yes_to
        )
        self._at_once = at_once
        self._tasks: dict[asyncio.Task[Any], tuple[str, str]] = {}
        """The requests in progress, and whose they are."""
        super().__init__(self._answer, token, host=host, port=port, url=url, max_body=MAX_BODY)
        self.app = shape_errors(self.app)

    async def close(self) -> None:
        """End all work, close sessions and connections. The assembly stays open."""
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        await self._agents.close()
        await self.models.close()

    async def _leave(self, session: Session) -> None:
        await self._assembly.close_session(session, strict=False)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._route(scope, receive, send)
        except RequestRefused as refused:
            await send_refusal(send, refused)
        except FerruleError as error:
            await send_refusal(send, to_refusal(error, has_started=False))

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = find_route_problem(scope, _ROUTES)
        if problem is not None:
            raise RequestRefused(problem[1], status=problem[0])
        path = route_path(scope)
        if path == CHAT:
            await self._chat(scope["state"]["visitor"], receive, send)
        elif path == LIST:
            entries = [self.models.model_entry(id_) for id_ in self.models.ids]
            await send_json(send, encode_json({"object": "list", "data": entries}))
        else:
            entry = self.models.model_entry(path.removeprefix(f"{LIST}/"))
            await send_json(send, encode_json(entry))

    async def _chat(self, visitor: Visitor, receive: Receive, send: Send) -> None:
        # The HTTP guard has read the body; it comes as one message.
        asked = parse_request((await receive())["body"])
        chosen = self.models.choose(asked.model)
        if not asked.messages.history:
            raise RequestRefused(
                "`messages` needs a message besides the instructions", param="messages"
            )
        if chosen.uses_agent:
            check_agent_request(asked)
        options = asked.sampling.apply_to(self.models.options(chosen.model), chosen.model)
        person = (visitor.tenant, visitor.user)
        mine = sum(owner == person for owner in self._tasks.values())
        refused = find_refusal(mine, len(self._tasks), of_one_person=self._at_once)
        if refused is not None:
            raise RequestRefused(
                f"{refused}; try again later", status=429, should_retry=True, retry_after=1
            )
        task = asyncio.current_task()
        assert task is not None
        reply = ChatReply(
            self._work(chosen, options, visitor, asked),
            asked.model,
            stream=asked.stream,
            include_usage=asked.include_usage,
            stop=asked.sampling.stop,
            has_started=chosen.uses_agent,
        )
        self._tasks[task] = person
        try:
            await reply.send(receive, send)
        finally:
            del self._tasks[task]

    def _work(
        self, chosen: ModelChoice, options: ModelOptions, visitor: Visitor, asked: ChatRequest
    ) -> Work:
        async def work(emit: Emit) -> AnswerEnd:
            if chosen.uses_agent:
                agent = self.models.agent(chosen.model, visitor)
                return await self._agents.run(agent, options, visitor, asked, emit)
            model_client = self.models.client(chosen.model)
            # Tools that the provider runs are for the agent only, whose gate decides on them.
            lent = replace(options, provider_tools=())
            return await ModelRelay(
                model_client, self.models.tool_mode(chosen.model), lent, asked, emit
            ).answer()

        return work
