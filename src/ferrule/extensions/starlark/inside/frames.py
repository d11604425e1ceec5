"""Messages between a worker and its owner: JSON after a length of four bytes (big endian).

owner to worker
    {"run": digest, "source"?, "file", "function", "arguments", "seconds", "result", "memory",
     "pure"}
    {"value": ...} or {"error": [type, message]}     the answer to a call
worker to owner
    {"ready": true}                                  once, after it has locked itself down
    {"call": name, "args": [...], "named": {...}}    answered before the script goes on
    {"print": text} and {"log": [level, text, fields]}          not answered
    {"done": value} or {"failed": [reason, message, type], "spent": whether the worker ends now}
"""

from __future__ import annotations

import json
import socket
from typing import Any

HEADER_SIZE = 4
FRAME_LIMIT = 16 << 20
"""Bytes of one frame at most, whatever it contains."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class TooLarge(Exception):
    """A message is longer than allowed."""


def encode_frame(message: dict[str, Any], limit: int = FRAME_LIMIT) -> bytes:
    """Encode a message.

    Lone surrogates become `?`, as UTF-8 cannot encode them. Raises TooLarge.
    """
    body = _encode(message).encode("utf-8", "replace")
    if len(body) > limit:
        raise TooLarge(f"{len(body)} bytes, the bound is {limit}")
    return len(body).to_bytes(HEADER_SIZE, "big") + body


def receive_frame(channel: socket.socket) -> dict[str, Any] | None:
    """Wait for the next message. None when the other side has closed."""
    head = _read_exactly(channel, HEADER_SIZE)
    if not head:
        return None
    body = _read_exactly(channel, int.from_bytes(head, "big"))
    return None if body is None else json.loads(body)


def _read_exactly(channel: socket.socket, size: int) -> bytes | None:
    pieces: list[bytes] = []
    while size:
        piece = channel.recv(min(size, 1 << 20))
        if not piece:
            return None
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
