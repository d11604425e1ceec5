"""Send an answer to the client: as a whole, or as server-sent events while it is made.

Source: the API reference of OpenAI (chat completions; chunks of a stream), and what its official
Python client reads.

The work runs in its own task and ends with the client: a client that disconnects cancels it, and it
is settled before this returns. A stream starts with its first piece, so that an error before it has
a status of its own; a later error is an event. After `HEARTBEAT` seconds of silence a comment is
sent, which clients skip, so that no proxy takes the connection for dead.

What only Ferrule has (`news`, `more` of the end) is in a member `ferrule` beside the API's own, in
chunks with an empty delta.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from ferrule.core.calls import encode_json
from ferrule.core.errors import FerruleError
from ferrule.core.events import Usage
from ferrule.runtime.hidden_errors import DEFECT, log_hidden_error
from ferrule.runtime.http.endpoint import (
    send_json,
    send_part,
    start_events,
    wait_for_disconnect,
)
from ferrule.runtime.http.http_security import Receive, Send

from .answer_parts import AnswerEnd, CallsPiece, Piece, StopFilter, TextPiece, ThinkingPiece, Work
from .errors import RequestRefused, send_refusal, to_refusal

HEARTBEAT = 15.0


class ChatReply:
    """One answer. `has_started` says that a retry would repeat what was done."""

    def __init__(
        self,
        work: Work,
        model: str,
        *,
        stream: bool,
        include_usage: bool,
        stop: tuple[str, ...] = (),
        has_started: bool = False,
    ) -> None:
        self._work = work
        self._stream = stream
        self._include_usage = include_usage
        self._stop = stop
        self._begun = has_started
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
        task = asyncio.create_task(self._do_work(queue))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        leaving = asyncio.create_task(wait_for_disconnect(receive))
        leaving.add_done_callback(lambda _: task.cancel())
        try:
            await (self._send_stream if self._stream else self._send_whole)(queue, task, send)
        finally:
            leaving.cancel()
            task.cancel()
            await asyncio.wait([task, leaving])

    async def _do_work(self, queue: asyncio.Queue[Piece | None]) -> AnswerEnd | RequestRefused:
        stopper = StopFilter(self._stop, queue.put_nowait)
        try:
            ended = await self._work(stopper)
        except RequestRefused as refused:
            return refused
        except FerruleError as error:
            return to_refusal(error, has_started=self._begun)
        except Exception as error:  # noqa: BLE001  boundary: the client gets an error that it does not retry
            log_hidden_error("openai", error)
            return RequestRefused(
                "a defect in this server", status=500, code=DEFECT, should_retry=False
            )
        stopper.close()
        cut = stopper.is_stopped and ended.finish == "length"
        return AnswerEnd("stop", ended.usage, ended.more) if cut else ended

    # ---- in one piece

    async def _send_whole(
        self,
        queue: asyncio.Queue[Piece | None],
        task: asyncio.Task[AnswerEnd | RequestRefused],
        send: Send,
    ) -> None:
        pieces: list[Piece] = []
        while (piece := await queue.get()) is not None:
            pieces.append(piece)
        ended = _outcome(task)
        if isinstance(ended, RequestRefused):
            await send_refusal(send, ended)
            return
        choice = {
            "index": 0,
            "message": build_message(pieces),
            "logprobs": None,
            "finish_reason": ended.finish,
        }
        value: dict[str, Any] = {
            **self._about,
            "choices": [choice],
            "usage": build_usage(ended.usage),
        }
        if ended.more:
            value["ferrule"] = dict(ended.more)
        await send_json(send, encode_json(value))

    # ---- as events

    async def _send_stream(
        self,
        queue: asyncio.Queue[Piece | None],
        task: asyncio.Task[AnswerEnd | RequestRefused],
        send: Send,
    ) -> None:
        first = await _next_piece(queue)
        if first is None and isinstance(refused := _outcome(task), RequestRefused):
            await send_refusal(send, refused)
            return
        await start_events(send)
        await self._send_chunk(send, {"role": "assistant", "content": ""})
        piece = first
        while piece is not None:
            if isinstance(piece, str):
                await send_part(send, ": at work\n\n")
            else:
                for delta, more in _deltas(piece):
                    await self._send_chunk(send, delta, more=more)
            piece = await _next_piece(queue)
        await self._send_end(_outcome(task), send)
        await send_part(send, b"", more=False)

    async def _send_end(self, ended: AnswerEnd | RequestRefused, send: Send) -> None:
        if isinstance(ended, RequestRefused):
            await send_part(send, f"data: {encode_json(ended.body())}\n\n")
            return
        await self._send_chunk(send, {}, finish=ended.finish, more=ended.more)
        if self._include_usage:
            counted: dict[str, Any] = {
                **self._about,
                "choices": [],
                "usage": build_usage(ended.usage),
            }
            await send_part(send, f"data: {encode_json(counted)}\n\n")
        await send_part(send, "data: [DONE]\n\n")

    async def _send_chunk(
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
        await send_part(send, f"data: {encode_json(value)}\n\n")


def build_message(pieces: list[Piece]) -> dict[str, Any]:
    """Return the `message` of a whole answer."""
    text = "".join(one.text for one in pieces if isinstance(one, TextPiece))
    thoughts = "".join(one.text for one in pieces if isinstance(one, ThinkingPiece))
    calls = [call for one in pieces if isinstance(one, CallsPiece) for call in _calls(one)]
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


def build_usage(usage: Usage) -> dict[str, Any]:
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
        case TextPiece(text):
            return [({"content": text}, None)]
        case ThinkingPiece(text):
            return [({"reasoning_content": text}, None)]
        case CallsPiece():
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


def _calls(piece: CallsPiece) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.tool, "arguments": call.arguments},
        }
        for call in piece.calls
    ]


def _outcome(task: asyncio.Task[AnswerEnd | RequestRefused]) -> AnswerEnd | RequestRefused:
    """Return the result of finished work."""
    if task.cancelled():
        return RequestRefused(
            "the request was stopped before it was complete",
            status=503,
            code="stopped",
            should_retry=False,
        )
    return task.result()


async def _next_piece(queue: asyncio.Queue[Piece | None]) -> Piece | str | None:
    """Return the next piece, None at the end, or a text after a long silence."""
    if not queue.empty():
        return queue.get_nowait()
    try:
        return await asyncio.wait_for(queue.get(), HEARTBEAT)
    except TimeoutError:
        return "silent"
