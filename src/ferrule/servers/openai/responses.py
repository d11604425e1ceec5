"""Send an answer to the client: as a whole, or as server-sent events while it is made.

Source: the API reference of OpenAI (chat completions; chunks of a stream), and what its official
Python client reads.

The work runs in its own task and ends with the client: a client that disconnects cancels it, and it
is settled before this returns. A stream starts with its first piece, so that an error before it has
a status of its own; a later error is an event. After `BEAT` seconds of silence a comment is sent,
which clients skip, so that no proxy takes the connection for dead.

What only Ferrule has (`news`, `more` of the end) is in a member `ferrule` beside the API's own, in
chunks with an empty delta.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from ferrule.core.calls import compact
from ferrule.core.errors import FerruleError
from ferrule.core.events import Usage
from ferrule.runtime.http.http_security import Receive, Send

from .answer_parts import Calls, Ended, Piece, Stopper, Thoughts, Words, Work
from .errors import Refused, refusal_of, send_json, send_refusal

BEAT = 15.0
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


class Reply:
    """One answer.

    `begun` says that a retry would repeat what was done; `notice` receives reports of defects.
    """

    def __init__(
        self,
        work: Work,
        model: str,
        *,
        stream: bool,
        include_usage: bool,
        stop: tuple[str, ...] = (),
        begun: bool = False,
        notice: Callable[[str], None],
    ) -> None:
        self._work = work
        self._notice = notice
        self._stream = stream
        self._include_usage = include_usage
        self._stop = stop
        self._begun = begun
        self._about = {
            "id": f"chatcmpl-{uuid4().hex}",
            "object": "chat.completion.chunk" if stream else "chat.completion",
            "created": int(time.time()),
            "model": model,
        }

    async def send(self, receive: Receive, send: Send) -> None:
        """Do the work and send the answer.

        Returns when both are over, also if the client disconnected.
        """
        queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        task = asyncio.create_task(self._worked(queue))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        leaving = asyncio.create_task(_left(receive))
        leaving.add_done_callback(lambda _: task.cancel())
        try:
            await (self._streamed if self._stream else self._whole)(queue, task, send)
        finally:
            leaving.cancel()
            task.cancel()
            await asyncio.wait([task, leaving])

    async def _worked(self, queue: asyncio.Queue[Piece | None]) -> Ended | Refused:
        stopper = Stopper(self._stop, queue.put_nowait)
        try:
            ended = await self._work(stopper)
        except Refused as refused:
            return refused
        except FerruleError as error:
            return refusal_of(error, begun=self._begun)
        except Exception as error:  # noqa: BLE001  boundary: the client gets an error that it does not retry
            self._notice(f"a defect in Ferrule: {type(error).__name__}: {error}")
            return Refused("a defect in this server", status=500, code="defect", again=False)
        stopper.close()
        cut = stopper.stopped and ended.finish == "length"
        return Ended("stop", ended.usage, ended.more) if cut else ended

    # ---- in one piece

    async def _whole(
        self, queue: asyncio.Queue[Piece | None], task: asyncio.Task[Ended | Refused], send: Send
    ) -> None:
        pieces: list[Piece] = []
        while (piece := await queue.get()) is not None:
            pieces.append(piece)
        ended = _outcome(task)
        if isinstance(ended, Refused):
            await send_refusal(send, ended)
            return
        choice = {
            "index": 0,
            "message": message_of(pieces),
            "logprobs": None,
            "finish_reason": ended.finish,
        }
        value = {**self._about, "choices": [choice], "usage": usage_of(ended.usage)}
        await send_json(send, {**value, "ferrule": dict(ended.more)} if ended.more else value)

    # ---- as events

    async def _streamed(
        self, queue: asyncio.Queue[Piece | None], task: asyncio.Task[Ended | Refused], send: Send
    ) -> None:
        first = await _next(queue)
        if first is None and isinstance(refused := _outcome(task), Refused):
            await send_refusal(send, refused)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        await self._data(send, {"role": "assistant", "content": ""})
        piece = first
        while piece is not None:
            if isinstance(piece, str):
                await _body(send, ": at work\n\n")
            else:
                for delta, more in _deltas(piece):
                    await self._data(send, delta, more=more)
            piece = await _next(queue)
        await self._end(_outcome(task), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end(self, ended: Ended | Refused, send: Send) -> None:
        if isinstance(ended, Refused):
            await _body(send, f"data: {compact(ended.body())}\n\n")
            return
        await self._data(send, {}, finish=ended.finish, more=ended.more)
        if self._include_usage:
            counted: dict[str, Any] = {**self._about, "choices": [], "usage": usage_of(ended.usage)}
            await _body(send, f"data: {compact(counted)}\n\n")
        await _body(send, "data: [DONE]\n\n")

    async def _data(
        self,
        send: Send,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        value: dict[str, Any] = {**self._about, "choices": [choice]}
        if self._include_usage:
            value["usage"] = None
        if more:
            value["ferrule"] = dict(more)
        await _body(send, f"data: {compact(value)}\n\n")


def message_of(pieces: list[Piece]) -> dict[str, Any]:
    """Return the `message` of a whole answer."""
    text = "".join(one.text for one in pieces if isinstance(one, Words))
    thoughts = "".join(one.text for one in pieces if isinstance(one, Thoughts))
    calls = [call for one in pieces if isinstance(one, Calls) for call in _calls(one)]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text or (None if calls else ""),
        "refusal": None,
    }
    if thoughts:
        message["reasoning_content"] = thoughts
    if calls:
        message["tool_calls"] = calls
    return message


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return the token usage in the API's form. What a provider did not count is 0."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _deltas(piece: Piece) -> list[tuple[dict[str, Any], Mapping[str, Any] | None]]:
    """Return the deltas of a piece.

    A call is sent as its head, then its arguments, the way clients put them together.
    """
    match piece:
        case Words(text):
            return [({"content": text}, None)]
        case Thoughts(text):
            return [({"reasoning_content": text}, None)]
        case Calls():
            return [
                ({"tool_calls": [part]}, None)
                for place, call in enumerate(_calls(piece))
                for part in (
                    {"index": place, **call, "function": {**call["function"], "arguments": ""}},
                    {"index": place, "function": {"arguments": call["function"]["arguments"]}},
                )
            ]
        case _:
            return [({}, piece.value)]


def _calls(piece: Calls) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.tool, "arguments": call.arguments},
        }
        for call in piece.calls
    ]


def _outcome(task: asyncio.Task[Ended | Refused]) -> Ended | Refused:
    """Return the result of finished work."""
    if task.cancelled():
        return Refused(
            "the request was stopped before it was complete",
            status=503,
            code="stopped",
            again=False,
        )
    return task.result()


async def _next(queue: asyncio.Queue[Piece | None]) -> Piece | str | None:
    """Return the next piece, None at the end, or a text after a long silence."""
    if not queue.empty():
        return queue.get_nowait()
    try:
        return await asyncio.wait_for(queue.get(), BEAT)
    except TimeoutError:
        return "silent"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(send: Send, text: str) -> None:
    await send(
        {"type": "http.response.body", "body": text.encode("utf-8", "replace"), "more_body": True}
    )
