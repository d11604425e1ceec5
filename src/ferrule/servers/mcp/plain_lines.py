"""Calls over standard streams that begin, and mostly end, without the library (`plain_calls`).

The reader of standard input shows each line here first. One that is no message is answered with an
error. A call begins at once, in the same iteration of the event loop, and its answer is written as
soon as its work is over. Where the library must see a call after all, it gets its line, before any
that came later.

A call that is under way at the end is answered as the library answers its own, and ended with the
client's session. It is not given to the library, which is ending as well.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from .handlers import Service
from .messages import INVALID_REQUEST, InvalidMessage, read_message
from .plain_calls import (
    ClientKey,
    KnownClient,
    PlainRequest,
    find_cancelled,
    format_closed,
    format_plain_answer,
    read_plain_request,
)
from .stdio import MAX_LINE, LineReader, LineWriter


class PlainLines:
    """The calls of the client at the standard streams."""

    def __init__(
        self, service: Service, client: ClientKey, reader: LineReader, writer: LineWriter
    ) -> None:
        self._service = service
        self._calls = service.plain_calls
        self._client = client
        self._lines: dict[int | str, bytes] = {}
        """The lines of the calls that the library has not seen, by the ids of their requests."""
        self._reader = reader
        self._writer = writer
        reader.take = self.take
        reader.on_end = self.close
        reader.on_too_long = self._refuse_long_line
        # Nobody reads answers any more: what runs is ended, as if the client had said so.
        writer.on_broken = reader.end

    def take(self, line: bytes) -> bool:
        """Begin the call that a line asks for. False: the library must see the line."""
        if line.isspace():
            return True
        message = read_message(line)
        if isinstance(message, InvalidMessage):
            self._refuse(message)
            return True
        if self._lines:
            self._hand_over(find_cancelled(message))
        return self._begin(message, line)

    def close(self) -> None:
        """Answer the calls that are under way: they end with their session."""
        for request_id in list(self._lines):
            del self._lines[request_id]
            if self._calls.end(self._client, request_id) is not None:
                self._writer.write_soon(format_closed(request_id) + b"\n")

    def _refuse(self, message: InvalidMessage) -> None:
        self._writer.write_soon(message.encode_answer() + b"\n")
        if self._writer.is_behind:
            self._reader.pause_until(self._writer.drain())

    def _refuse_long_line(self) -> None:
        reason = f"a line of more than {MAX_LINE // 1024**2} MiB is skipped"
        print(f"MCP client: {reason}", file=sys.stderr, flush=True)
        self._refuse(InvalidMessage(INVALID_REQUEST, f"Invalid request: {reason}"))

    def _begin(self, message: Mapping[str, Any], line: bytes) -> bool:
        known = self._calls.find(self._client)
        request = None if known is None else read_plain_request(message)
        if known is None or request is None:
            return False
        begun = self._service.begin_plain_call(known, request)
        if begun is None:
            return False
        self._lines[request.id] = line
        begun.watch(partial(self._settle, known, request))
        return True

    def _settle(self, known: KnownClient, request: PlainRequest) -> None:
        """Answer a call that is over, or let the library see it."""
        begun = self._calls.find_begun(self._client, request.id)
        if begun is None or request.id not in self._lines:
            return
        if not begun.has_plain_answer:
            self._hand_over(request.id)
            return
        del self._lines[request.id]
        self._calls.end(self._client, request.id)
        answer = format_plain_answer(request, known.peer.version, begun.outcome())
        self._writer.write_soon(answer + b"\n")

    def _hand_over(self, request_id: int | str) -> None:
        line = self._lines.pop(request_id, None)
        if line is not None and self._calls.hand_over(self._client, request_id):
            self._reader.add(line)
