"""The client of one A2A peer in a run: reads its card, makes calls, cancels abandoned tasks.

Nothing is sent before the first call. The card is read again when it is older than `CARD_LIFETIME`
(seconds); a call goes out only if the head of the card and the skill are as they were approved, and
what differs is kept for the person to review.

A call that ends before its task does has the task cancelled at the peer, however the call ended;
nobody waits for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ferrule.connectors.json_values import objects_in, text_or_empty
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.tools.context import Context

from . import signatures
from .cards import Card, Skill, read_card
from .exchange import CANCEL_SECONDS, Exchange, InvalidAnswer, make_client, parse_card, to_json
from .http import CARD_SECONDS, RequestRefused, fetch_card, make_http_client, request_failure
from .messages import get_conversation, make_message, read_files
from .peer_approvals import PeerApprovals
from .results import result_value
from .spec import A2aPeer, secret_headers
from .task_state import TaskState

CARD_LIFETIME = 600.0


class PeerClient:
    """The client of one peer. Used on one event loop at a time; on another one it starts anew."""

    def __init__(self, peer: A2aPeer, approvals: PeerApprovals, card: Card | None) -> None:
        self.peer = peer
        self.card = card
        """What was approved, or what was found if no approval is needed."""
        self._approvals = approvals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: Any = None
        self._opening = asyncio.Lock()
        self._last_card: tuple[float, Card] | None = None
        self._cancellations: set[asyncio.Task[None]] = set()

    async def fetch_card(self) -> Card:
        """Return the peer's current card. Raises ToolFailed."""
        card = await self._read(await self._connect())
        if isinstance(card, ToolFailed):
            raise card
        self._last_card = (time.monotonic(), card)
        return card

    async def _read(self, http: Any) -> Card | ToolFailed:
        try:
            async with asyncio.timeout(CARD_SECONDS):
                value = parse_card(await fetch_card(self.peer, http))
            if self.peer.keys:
                await asyncio.to_thread(signatures.verify_card, value, self.peer.keys)
            return read_card(to_json(value))
        except TimeoutError:
            message = (
                f"the agent `{self.peer.name}` did not give its card within {CARD_SECONDS:g} s"
            )
            return ToolFailed(ErrorType.TIMEOUT, message, kind="transient")
        except FerruleError as error:
            return ToolFailed(ErrorType.INTERNAL_ERROR, error.detail)
        except signatures.SignatureInvalid as error:
            reason = clean_text(str(error))[:500]
            message = f"the card of the agent `{self.peer.name}` is not accepted: {reason}"
            return ToolFailed(ErrorType.PERMISSION_DENIED, message)
        except Exception as error:  # noqa: BLE001  boundary: libraries parse a peer's words, and fail in their own ways
            return _without_outcome(request_failure(self.peer, "reading the card of", error))

    async def call(
        self,
        tool: str,
        skill: Skill,
        arguments: Mapping[str, Any],
        context: Context,
        seconds: float,
    ) -> Any:
        """Return the value of one call. Raises ToolFailed."""
        conversation = get_conversation(context, self.peer.name)
        files = await read_files(arguments.get("files", ()), context)
        message = make_message(self.peer, skill, arguments, files, conversation, context)
        await self._check_unchanged(skill)
        assert self.card is not None
        exchange = self._exchange(self.card, context)
        try:
            task = await self._run_bounded(exchange, message, seconds)
        finally:
            self._cancel_unfinished(exchange, context)
        if isinstance(task, ToolFailed):
            raise task
        conversation.record(task)
        return result_value(self.peer.name, tool, task)

    async def close(self) -> None:
        """Finish pending cancellations and close the connections. They open again when needed."""
        http = self._http
        self._http = None
        if self._loop is asyncio.get_running_loop():
            await self._finish_cancellations()
            if http is not None:
                await http.aclose()

    # ---- connecting

    async def _connect(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The connections' event loop is gone, and the connections with it.
            self._loop = loop
            self._http = None
            self._opening = asyncio.Lock()
            self._cancellations.clear()
        async with self._opening:
            if self._http is None:
                try:
                    self._http = await asyncio.to_thread(self._open)
                except FerruleError as error:
                    raise ToolFailed(ErrorType.INTERNAL_ERROR, error.detail) from error
                except ImportError as error:
                    message = (
                        "A2A agents need libraries that are not installed: "
                        f"`pip install 'ferrule[a2a]'` ({error})"
                    )
                    raise ToolFailed(ErrorType.INTERNAL_ERROR, message) from error
        return self._http

    def _open(self) -> Any:
        """Make the HTTP client, in a thread: the protocol library and certificates take a while."""
        import_module("a2a.client")
        if self.peer.keys:
            import_module("a2a.utils.signing")
        return make_http_client(self.peer, secret_headers(self.peer))

    def _exchange(self, card: Card, context: Context) -> Exchange:
        """Prepare one call, limited to addresses of the card that the person's word covers."""
        interfaces = objects_in(card.head.get("supportedInterfaces"))
        allowed = [
            interface
            for interface in interfaces
            if self.peer.allows_url(text_or_empty(interface.get("url")))
        ]
        name = self.peer.name
        if not allowed:
            addresses = ", ".join(f"`{clean_text(url)[:100]}`" for url in card.addresses[:4])
            step = "nothing can be done here"
            if interfaces:
                step = "if that is right, a person can write it as `endpoint`"
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"the agent `{name}` was not asked: its card leads to "
                f"{addresses or 'no address at all'}; {step}",
            )
        head = {**card.head, "supportedInterfaces": allowed}
        try:
            client = make_client(head, self._http, supports_streaming=card.supports_streaming)
        except ValueError as error:
            message = (
                f"the agent `{name}` was not asked: it supports no known transport "
                "(JSON-RPC, HTTP+JSON)"
            )
            raise ToolFailed(ErrorType.TOOL_ERROR, message) from error
        return Exchange(client, card.supports_streaming, context.progress)

    # ---- one call

    async def _run_bounded(
        self, exchange: Exchange, message: Mapping[str, Any], seconds: float
    ) -> TaskState | ToolFailed:
        bound = asyncio.timeout(seconds)
        name = self.peer.name
        try:
            async with bound:
                return await exchange.run(message)
        except InvalidAnswer as error:
            return ToolFailed(
                ErrorType.PARSE_ERROR, f"the answer of the agent `{name}` is not accepted: {error}"
            )
        except Exception as error:  # noqa: BLE001  boundary: libraries parse a peer's words, and fail in their own ways
            if not bound.expired():
                return request_failure(self.peer, "asking", error)
            outcome = "it may still be working, and"
            if exchange.task.can_cancel:
                outcome = "it was asked to stop, but"
            return ToolFailed(
                ErrorType.TIMEOUT,
                f"the agent `{name}` gave no answer within {seconds:g} s; {outcome} what it did so "
                "far may stand",
                kind="timeout",
            )

    async def _check_unchanged(self, skill: Skill) -> None:
        """Check that the skill, and how the peer is reached, are still what was approved.

        Raises:
            ToolFailed: They are not.
        """
        await self._connect()
        if self._last_card is None or time.monotonic() - self._last_card[0] > CARD_LIFETIME:
            card = await self.fetch_card()
            if self.card is not None:
                is_same = card.digest() == self.card.digest()
                self._approvals.set_pending(self.peer, None if is_same else card)
        assert self._last_card is not None and self.card is not None
        current = self._last_card[1]
        current_skill = current.get_skill(skill.id)
        has_skill_changed = current_skill is not None and current_skill.hash != skill.hash
        name = f"`{clean_text(skill.id)[:80]}` of the agent `{self.peer.name}`"
        step = f"a person can look at the change with `ferrule a2a approve {self.peer.name}`"
        if current.head_hash != self.card.head_hash or has_skill_changed:
            changed = "it" if has_skill_changed else "what the agent says of itself"
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"{name} was not asked: {changed} changed since it was approved; {step}",
            )
        if current_skill is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND, f"{name} was not asked: the agent does not offer it any more"
            )

    # ---- cancelling

    def _cancel_unfinished(self, exchange: Exchange, context: Context) -> None:
        """Have the task cancelled, without waiting, if the call ended before it did.

        A task that waits for an answer is left alone.
        """
        if not exchange.task.can_cancel or exchange.task.is_settled:
            return
        task = asyncio.get_running_loop().create_task(
            self._cancel(exchange), name=f"a2a {self.peer.name} cancellation"
        )
        self._cancellations.add(task)
        task.add_done_callback(self._cancellations.discard)
        context.on_close(self._finish_cancellations)

    async def _cancel(self, exchange: Exchange) -> None:
        try:
            await exchange.cancel()
        except (Exception, RequestRefused):  # noqa: BLE001  the call is over for us either way, and its result said so
            return

    async def _finish_cancellations(self) -> None:
        pending = list(self._cancellations)
        if pending:
            await asyncio.wait(pending, timeout=CANCEL_SECONDS + 1)


def _without_outcome(error: ToolFailed) -> ToolFailed:
    """Return the failure of a read, which has no unknown outcome and can be retried."""
    message = error.message.partition("; outcome unknown")[0]
    kind = "transient" if error.kind == "5xx" else error.kind
    return ToolFailed(error.error_type, message, kind=kind, retry_after=error.retry_after)
