"""A peer in a run: looked at, asked, told when nobody waits for it any more.

Nothing is asked before the first call. Its card is read again when it is older than `FRESH`
seconds; a call goes out only if the head of the card and the skill are as they were approved, and
what differs is kept for the person to look at.

A call that ends before its task does has the task cancelled at the peer, however it ended; nobody
waits for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ferrule.connectors.cleaning import clean
from ferrule.connectors.json_values import objects_of, text_of
from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.tools.context import Context

from . import signatures
from .approvals import Approvals
from .cards import Card, Skill, read_card
from .exchange import FAREWELL, Exchange, Unusable, client_of, json_of, parsed
from .http import CARD_SECONDS, Refused, client_for, failed, fetch_card
from .messages import conversation_of, message_of
from .results import value_of
from .spec import A2aPeer, secret_headers
from .task_state import Work

FRESH = 600.0


class Live:
    """One peer of a run. Used on one event loop at a time; on another one it starts anew."""

    def __init__(self, peer: A2aPeer, approvals: Approvals, card: Card | None) -> None:
        self.peer = peer
        self.card = card
        """What was approved, or what was found where nothing has to be."""
        self._approvals = approvals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: Any = None
        self._opening = asyncio.Lock()
        self._seen: tuple[float, Card] | None = None
        self._farewells: set[asyncio.Task[None]] = set()

    async def look(self) -> Card:
        """What its card says now. Raises ToolFailed."""
        found = await self._read(await self._connected())
        if isinstance(found, ToolFailed):
            raise found
        self._seen = (time.monotonic(), found)
        return found

    async def _read(self, http: Any) -> Card | ToolFailed:
        try:
            async with asyncio.timeout(CARD_SECONDS):
                value = parsed(await fetch_card(self.peer, http))
            if self.peer.keys:
                await asyncio.to_thread(signatures.verify, value, self.peer.keys)
            return read_card(json_of(value))
        except TimeoutError:
            said = f"the agent `{self.peer.name}` did not give its card within {CARD_SECONDS:g} s"
            return ToolFailed(ErrorType.TIMEOUT, said, kind="transient")
        except FerruleError as error:
            return ToolFailed(ErrorType.INTERNAL_ERROR, error.detail)
        except signatures.NotSigned as error:
            said = (
                f"the card of the agent `{self.peer.name}` is not taken: {clean(str(error))[:500]}"
            )
            return ToolFailed(ErrorType.PERMISSION_DENIED, said)
        except Exception as error:  # noqa: BLE001  boundary: libraries read what a stranger wrote, and fail in their own ways
            return _harmless(failed(self.peer, "reading the card of", error))

    async def call(
        self, tool: str, skill: Skill, values: Mapping[str, Any], context: Context, seconds: float
    ) -> Any:
        """The value of one call. Raises ToolFailed."""
        talk = conversation_of(context, self.peer.name)
        message = message_of(self.peer, skill, values, talk, context)
        await self._check(skill)
        assert self.card is not None
        exchange = self._exchange(self.card, context)
        try:
            work = await self._bounded(exchange, message, seconds)
        finally:
            self._leave(exchange, context)
        if isinstance(work, ToolFailed):
            raise work
        talk.learn(work)
        return value_of(self.peer.name, tool, work)

    async def close(self) -> None:
        """Say the farewells that are due, and hang up. It is called again when it is needed
        again.
        """
        http, self._http = self._http, None
        if self._loop is asyncio.get_running_loop():
            await self._said_farewell()
            if http is not None:
                await http.aclose()

    # ---- the way there

    async def _connected(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The loop that the connections belonged to is gone, and they with it.
            self._loop, self._http, self._opening = loop, None, asyncio.Lock()
            self._farewells.clear()
        async with self._opening:
            if self._http is None:
                try:
                    self._http = await asyncio.to_thread(self._open)
                except FerruleError as error:
                    raise ToolFailed(ErrorType.INTERNAL_ERROR, error.detail) from error
                except ImportError as error:
                    said = (
                        "speaking with A2A agents needs libraries that are not here: `pip "
                        "install 'ferrule[a2a]'`"
                    )
                    raise ToolFailed(ErrorType.INTERNAL_ERROR, f"{said} ({error})") from error
        return self._http

    def _open(self) -> Any:
        """In a thread: the protocol library and the certificates take a while."""
        for name in ("a2a.client", *(("a2a.utils.signing",) if self.peer.keys else ())):
            import_module(name)
        return client_for(self.peer, secret_headers(self.peer))

    def _exchange(self, card: Card, context: Context) -> Exchange:
        """The way for one call, to those of the card's addresses that the person's word covers."""
        interfaces = objects_of(card.head.get("supportedInterfaces"))
        admitted = [one for one in interfaces if self.peer.admits(text_of(one.get("url")))]
        name = self.peer.name
        if not admitted:
            led = (
                ", ".join(f"`{clean(url)[:100]}`" for url in card.addresses[:4])
                or "no address at all"
            )
            step = (
                "if that is right, a person can write it as `endpoint`"
                if interfaces
                else "nothing can be done here"
            )
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"the agent `{name}` was not asked: its card leads to {led}; {step}",
            )
        head = {**card.head, "supportedInterfaces": admitted}
        try:
            client = client_of(head, self._http, streams=card.streams)
        except ValueError as error:
            said = (
                f"the agent `{name}` was not asked: it speaks in no way that is known here "
                "(JSON-RPC, HTTP+JSON)"
            )
            raise ToolFailed(ErrorType.TOOL_ERROR, said) from error
        return Exchange(client, card.streams, context.progress)

    # ---- one call

    async def _bounded(
        self, exchange: Exchange, message: Mapping[str, Any], seconds: float
    ) -> Work | ToolFailed:
        bound = asyncio.timeout(seconds)
        name = self.peer.name
        try:
            async with bound:
                return await exchange.run(message)
        except Unusable as error:
            return ToolFailed(
                ErrorType.PARSE_ERROR, f"the answer of the agent `{name}` is not taken: {error}"
            )
        except Exception as error:  # noqa: BLE001  boundary: libraries read what a stranger wrote, and fail in their own ways
            if not bound.expired():
                return failed(self.peer, "asking", error)
            known = (
                "it was told to stop, but" if exchange.work.runs else "it may still be at it, and"
            )
            said = (
                f"the agent `{name}` gave no answer within {seconds:g} s; {known} what it did so "
                "far may stand"
            )
            return ToolFailed(ErrorType.TIMEOUT, said, kind="timeout")

    async def _check(self, skill: Skill) -> None:
        """That a skill, and how the peer is reached, are still what was approved. Raises
        ToolFailed.
        """
        await self._connected()
        if self._seen is None or time.monotonic() - self._seen[0] > FRESH:
            found = await self.look()
            if self.card is not None:
                self._approvals.pend(
                    self.peer, None if found.digest() == self.card.digest() else found
                )
        assert self._seen is not None and self.card is not None
        now = self._seen[1]
        name = f"`{clean(skill.id)[:80]}` of the agent `{self.peer.name}`"
        step = f"a person can look at the change with `ferrule a2a approve {self.peer.name}`"
        found_skill = now.get(skill.id)
        if now.head_hash != self.card.head_hash or (found_skill and found_skill.hash != skill.hash):
            changed = (
                "it"
                if found_skill and found_skill.hash != skill.hash
                else "what the agent says of itself"
            )
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"{name} was not asked: {changed} changed since it was approved; {step}",
            )
        if found_skill is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND, f"{name} was not asked: the agent does not offer it any more"
            )

    # ---- farewells

    def _leave(self, exchange: Exchange, context: Context) -> None:
        """The call is over. If the task is not, and nobody is asked for anything, have it
        cancelled, without waiting for that here.
        """
        if not exchange.work.runs or exchange.work.settled:
            return
        task = asyncio.get_running_loop().create_task(
            self._cancelled(exchange), name=f"a2a {self.peer.name} farewell"
        )
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)
        context.on_close(self._said_farewell)

    async def _cancelled(self, exchange: Exchange) -> None:
        try:
            await exchange.cancel()
        except (Exception, Refused):  # noqa: BLE001  the call is over for us either way, and its result said so
            return

    async def _said_farewell(self) -> None:
        due = list(self._farewells)
        if due:
            await asyncio.wait(due, timeout=FAREWELL + 1)


def _harmless(error: ToolFailed) -> ToolFailed:
    """A failure to read something: nothing was done, whatever broke. Without the words that say
    otherwise.
    """
    said = error.message.partition("; outcome unknown")[0]
    kind = "transient" if error.kind == "5xx" else error.kind
    return ToolFailed(error.error_type, said, kind=kind, retry_after=error.retry_after)
