"""A request in progress: it continues where its client left it, even over several exchanges.

A handler that asks its client waits for the answer. If the protocol has no way to ask, the request
is answered with the questions and a state; the client asks its person and sends the same request
again with the answers and that state, which resumes the waiting work. So there is one call, however
often the client comes, and nothing of it runs twice. A state is used once, and it is bound to the
client, the method, the name and the arguments (`handlers` seals it). Withdrawing the request before
it is answered (cancelling it, closing its stream, disconnecting) ends the work, with all the
programs that it started.

Not kept: waiting work is gone with the process; its call is then settled as not run, or as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

from .blocks import Block, block_size
from .peer import ANSWER_SECONDS, Peer, PlainPeer, RequestPeer, capability_of

MAX_SHOWN = 4 * 1024 * 1024
"""Most characters of all blocks beside a result."""

_TAKING_OVER = 5.0
"""Seconds that a request which must have a stream waits for the library to take it over."""

Question = Mapping[str, Any]
Answers = dict[str, dict[str, Any]]


class CapabilityLacking(ToolFailed):
    """The client lacks a capability that a tool needs."""


class ClientRequest:
    """One request of a client.

    `given` holds answers that came with it, to questions that a tool is going to ask; `level` is
    the lowest level of lines the client wants for its log.
    """

    def __init__(self, peer: Peer, given: Answers, level: str = "info") -> None:
        self.peer: Peer = peer
        self.level = level
        self.call_ids: set[str] = set()
        self.shown_blocks: list[Block] = []
        self.lacking_capability: str = ""
        """A capability that a tool needed and the client does not have."""
        self.on_answered: Callable[[], None] = _do_nothing
        """Called once a person has decided whether the call may run."""
        self.last_call_id = ""
        """The id of the last call made directly for this request, not within another call."""
        self.approvals: dict[str, Any] = {}
        """A person's answers to calls by digest, for the duration of this request: the first call
        that runs ends it.
        """
        self.wanted_approval: tuple[str, Question] | None = None
        """The digest of a call that a person must be asked about before it is made again, and the
        question.
        """
        self._given = given
        self._open: dict[str, tuple[Question, asyncio.Future[dict[str, Any]]]] = {}
        self._turn: asyncio.Future[None] | None = None
        self._work: asyncio.Task[Any] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the work is done."""
        return self._work is not None and self._work.done()

    def start(self, work: Coroutine[Any, Any, Any], on_done: Callable[[], None]) -> None:
        """Start the work of the request. `on_done` is called when it is over, however it ends."""
        self._work = asyncio.create_task(work, name="mcp request")

        def over(_: asyncio.Task[Any]) -> None:
            on_done()
            self._wake()

        self._work.add_done_callback(over)

    # ---- for the client's side

    async def wait(self) -> Mapping[str, Question] | None:
        """Wait until the work is over or has questions for the client.

        Return the open questions; None when the work is over (see `outcome`). If this is cancelled,
        it ends the work first.
        """
        assert self._work is not None
        try:
            while not self._work.done():
                if self._open:
                    await self.peer.drain()
                    return {name: question for name, (question, _) in self._open.items()}
                self._turn = asyncio.get_running_loop().create_future()
                await self._turn
            await self.peer.drain()
        except asyncio.CancelledError:
            self.peer.disconnect()
            await self.stop()
            raise
        return None

    async def wait_for_plain_answer(self, seconds: float) -> bool:
        """Wait until the work is over. Return whether it has a result and nothing more to send.

        Gives up after a time, and when the client must be reached before the answer. If this is
        cancelled, it ends the work first.
        """
        assert isinstance(self.peer, PlainPeer)
        self.peer.on_needed = self._wake
        loop = asyncio.get_running_loop()
        self._turn = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._turn
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            timer.cancel()
        return self.has_plain_answer

    def watch(self, notify: Callable[[], object]) -> None:
        """Call `notify` when the work is over, and when the client must be reached before."""
        assert self._work is not None
        assert isinstance(self.peer, PlainPeer)
        self.peer.on_needed = notify
        self._work.add_done_callback(lambda _: notify())

    @property
    def has_plain_answer(self) -> bool:
        """Whether the work has a result and nothing is to be sent before it."""
        work = self._work
        if work is None or not work.done() or work.cancelled() or self.lacking_capability:
            return False
        needs_stream = isinstance(self.peer, PlainPeer) and self.peer.needs_stream
        return not needs_stream and work.exception() is None

    def take_over(self, peer: RequestPeer) -> None:
        """Continue with the library's stream, for a request that began without one."""
        before = self.peer
        self.peer = peer
        if isinstance(before, PlainPeer):
            before.hand_over(peer)

    async def begin_stream(self) -> None:
        """Have the library take the request over, and wait until it has."""
        if isinstance(self.peer, PlainPeer):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TAKING_OVER):
                    await self.peer.reach()

    def outcome(self) -> Any:
        """Return the result of the work, or raise its exception."""
        assert self._work is not None
        return self._work.result()

    def resume(self, peer: RequestPeer, answers: Answers) -> None:
        """Continue with another exchange of the client.

        Answers to what was not asked are ignored; what was not answered stays open.
        """
        self.peer = peer
        for name in [one for one in self._open if one in answers]:
            _, answered = self._open.pop(name)
            if not answered.done():
                answered.set_result(answers[name])

    async def stop(self) -> None:
        """Cancel the work and wait until it has ended."""
        import anyio

        if self._work is None or self._work.done():
            return
        self._work.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._work])

    # ---- for the handler's side

    async def ask(self, questions: Mapping[str, Question], *, use_given: bool = True) -> Answers:
        """Ask the client questions, by name.

        With `use_given`, answers that came with the request count.

        Raises:
            CapabilityLacking: the client cannot be asked this.
            NoAnswer: the client did not answer.
            TimeoutError: the answer took too long.
        """
        for question in questions.values():
            if not self.peer.can(capability_of(question)):
                lacking = capability_of(question)
                self.lacking_capability = lacking
                reason = f"this client lacks the capability `{lacking}`, which is needed here"
                raise CapabilityLacking(ErrorType.PERMISSION_DENIED, reason)
        if not self.peer.is_modern:
            return {name: await self.peer.ask(question) for name, question in questions.items()}
        answers = {
            name: self._given.pop(name) for name in questions if use_given and name in self._given
        }
        waiting = {
            name: self._open_question(name, one)
            for name, one in questions.items()
            if name not in answers
        }
        self._wake()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for name, answered in waiting.items():
                    answers[name] = await answered
        finally:
            for name, answered in waiting.items():
                if name in self._open and self._open[name][1] is answered:
                    del self._open[name]
        return answers

    def show(self, block: Block) -> None:
        """Send a block beside the result. Raises ToolFailed beyond `MAX_SHOWN`."""
        if sum(map(block_size, (*self.shown_blocks, block))) > MAX_SHOWN:
            said = f"the blocks beside the result exceed {MAX_SHOWN} characters"
            raise ToolFailed(ErrorType.LIMIT, said)
        self.shown_blocks.append(block)

    def _open_question(self, name: str, question: Question) -> asyncio.Future[dict[str, Any]]:
        if name in self._open:
            raise ValueError(f"a question `{name}` is open already")
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[name] = (question, answered)
        return answered

    def _wake(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


class SuspendedRequests:
    """Requests that wait for their client to come again.

    Each is kept under a name that only the client was told; a name is valid once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: dict[str, ClientRequest] = {}

    def keep(self, request: ClientRequest) -> str | None:
        """Keep a request and return its name, or None if too many wait."""
        for name in [name for name, one in self._requests.items() if one.is_done]:
            del self._requests[name]
        if len(self._requests) >= self._most:
            return None
        name = uuid4().hex
        self._requests[name] = request
        return name

    def take(self, name: str) -> ClientRequest | None:
        """Remove and return the request of this name."""
        return self._requests.pop(name, None)


def _do_nothing() -> None:
    """Do nothing: no one waits for an answer."""
